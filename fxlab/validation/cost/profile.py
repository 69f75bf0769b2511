"""``fxlab.profile``: time, memory and operations of each node."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.checks import positive_int
from fxlab.base.first_use import pd
from fxlab.base.interrupts import RestoringStack
from fxlab.front_desk import sources
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import accelerators_in_use, generators_kept, gradients_for, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.operators import node_info
from fxlab.validation.arguments import check_runs, check_runs_by_node
from fxlab.validation.cost.memory import PeakMemory
from fxlab.validation.cost.traced_flops import FlopCount
from fxlab.values.tensors import tensor_leaves

COLUMNS = (
    "op", "target", "module_path", "time", "share", "flops", "parameters", "bytes_in", "bytes_out",
    "peak_memory",
)  # fmt: skip


def profile(
    graph: sources.Model | sources.SessionLike, inputs: Inputs | None = None, *, rounds: int = 5
) -> pd.DataFrame:
    """Measure the costs of each node of a graph: time, operations and memory.

    The graph is run node by node without gradients: once to count, which warms up as well, and ``rounds``
    times to take the time. Node by node means that small nodes take longer than in the compiled code;
    compare whole models with :func:`benchmark`.

    Parameters
    ----------
    graph
        The graph module to run, in the mode (training or not) that it is in; a session, of which the present
        one is run; or a module, which is traced.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those of the
        session, or made from the configuration of the module (see :func:`fxlab.example_inputs`).
    rounds
        How many rounds the time is the median of.

    Returns
    -------
    pandas.DataFrame
        One row for each node but the output, in the order of the graph, indexed by its name (``node``):
        ``op``, ``target``, ``module_path``, and

        ``time``, ``share``
            In seconds, and as a share of that of all nodes.
        ``flops``
            Floating-point operations of matrix products, convolutions, attention and recurrent layers, a
            multiplication and an addition being two, as ``torch.utils.flop_counter`` counts them. NaN where
            they are not known: a Fourier transform, a decomposition, an operator of another library.
        ``parameters``
            How many numbers in parameters it is the first to use: parameters that several nodes use (tied
            weights, a layer that is called twice) count once.
        ``bytes_in``, ``bytes_out``
            The size of the tensors that it reads, its own weights and buffers included, and of those that it
            returns, views included.
        ``peak_memory``
            The most bytes of new tensors that are alive at once while it runs.

    Raises
    ------
    TypeError
        If ``model`` is neither a module nor a session, or no model can be called with ``inputs``.
    ValueError
        If it does not run on the inputs, has no weights (the meta device), or ``rounds`` is not positive.

    Examples
    --------
    >>> graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()))
    >>> profile(graph, torch.ones(2, 4))[["flops", "parameters", "bytes_in", "bytes_out"]]
             flops  parameters  bytes_in  bytes_out
    node
    input_1    0.0           0         0         32
    _0       128.0          40       192         64
    _1         0.0           0        64         64
    """
    found = sources.resolved(graph, "graph")
    module = sources.module_of(found, "graph")
    check_runs(module, "graph")
    positive_int(rounds, "rounds")
    inputs = sources.inputs_or_examples(sources.inputs_of(found, inputs), module)
    graph_module = sources.graph_of(module, "graph", inputs)
    check_runs_by_node(graph_module, "graph")
    counted = _Counting(graph_module)
    with state_kept(graph_module) as state:
        # Entered last, the memory mode sees each call whole, and the parts it decomposes into are counted.
        with counted.flops, counted.memory:
            _run(counted, inputs)
        written = state.copied_parameters
    timed = _Timing(graph_module)
    for _ in range(rounds):  # each from the state of the first
        with state_kept(graph_module, watch=False, parameters=written):
            _run(timed, inputs)
    times = {node: statistics.median(seconds) for node, seconds in timed.seconds.items()}
    total = sum(times.values())
    parameters = node_info.parameter_counts(graph_module)
    rows = {
        node.name: [
            node.op,
            node_info.target_text(node),
            node_info.module_path(node),
            times[node],
            times[node] / total if total else 0.0,
            flops,
            parameters[node],
            bytes_in,
            bytes_out,
            peak,
        ]
        for node, (flops, bytes_in, bytes_out, peak) in counted.counts.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("node")


def _run(interpreter: Interpreter, inputs: Inputs) -> None:
    graph_module = interpreter.module
    assert isinstance(graph_module, GraphModule)
    try:
        arguments = placeholder_values(graph_module, inputs)
        with RestoringStack(gradients_for(graph_module), generators_kept()):
            seed_generators(0)
            interpreter.run(*arguments)
    except Exception as error:  # a model may refuse inputs with any error
        raise ValueError(
            f"model: the {type(graph_module).__name__} does not run on these inputs: {error}"
        ) from error


class _Timing(Interpreter):
    """Takes the time of each node, without that of finding its arguments."""

    def __init__(self, graph_module: GraphModule) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.seconds: dict[Node, list[float]] = defaultdict(list)
        self._devices = accelerators_in_use()

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        self._wait()
        start = time.perf_counter()
        result = getattr(self, n.op)(n.target, args, kwargs)
        self._wait()
        if n.op != "output":
            self.seconds[n].append(time.perf_counter() - start)
        return result

    def _wait(self) -> None:
        for device in self._devices:
            torch.accelerator.synchronize(device)


class _Counting(Interpreter):
    """Counts operations and bytes of each node."""

    def __init__(self, graph_module: GraphModule) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.flops = FlopCount()
        self.memory = PeakMemory()
        self.counts: dict[Node, tuple[float, int, int, int]] = {}

    def run_node(self, n: Node) -> Any:
        given = self.fetch_args_kwargs_from_env(n)
        self.flops.restart()
        self.memory.restart()
        result = super().run_node(n)
        if n.op != "output":
            self.counts[n] = (
                self.flops.total,
                _bytes(given) + self._held_bytes(n),
                _bytes(result),
                self.memory.peak,
            )
        return result

    def _held_bytes(self, node: Node) -> int:
        if node.op != "call_module":
            return 0
        module = self.fetch_attr(str(node.target))
        return _bytes([*module.parameters(), *module.buffers()])


def _bytes(value: Any) -> int:
    tensors = {id(tensor): tensor for tensor in tensor_leaves(value)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
