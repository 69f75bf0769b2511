"""``fxlab.profile``: time, memory and operations of each node; ``steps.collectives``: those beside them."""

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
from fxlab.front_desk.sources import (
    Model,
    SessionLike,
    graph_of,
    inputs_of,
    inputs_or_examples,
    module_of,
    resolved,
)
from fxlab.graphs.unfolded import unfolded
from fxlab.models.parallel.collectives import Collective, collectives_of, tensor_bytes
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import accelerators_in_use, generators_kept, gradients_for, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.operators.node_info import (
    known_result,
    module_path,
    modules_by_path,
    parameter_counts,
    target_text,
)
from fxlab.validation.arguments import check_runs, check_runs_by_node
from fxlab.validation.cost.memory import PeakMemory, pass_of
from fxlab.validation.cost.traced_flops import FlopCount, TracedFlops
from fxlab.values.tensors import tensor_leaves

COLUMNS = (
    "op", "target", "module_path", "time", "share", "flops", "parameters", "bytes_in", "bytes_out",
    "peak_memory",
)  # fmt: skip


def profile(graph: Model | SessionLike, inputs: Inputs | None = None, *, rounds: int = 5) -> pd.DataFrame:
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
    found = resolved(graph, "graph")
    module = module_of(found, "graph")
    check_runs(module, "graph")
    positive_int(rounds, "rounds")
    inputs = inputs_or_examples(inputs_of(found, inputs), module)
    graph_module = graph_of(module, "graph", inputs)
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
    parameters = parameter_counts(graph_module)
    rows = {
        node.name: [
            node.op,
            target_text(node),
            module_path(node),
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


_OF_COLLECTIVES: Any = {
    "kind": str, "reduction": str, "group": str, "ranks": "Int64", "bytes": int, "wait": str, "between": int,
    "flops_between": int, "bytes_between": int, "exposed": bool, "pass": str, "module_path": str,
}  # fmt: skip


def collectives(graph: Model | SessionLike, inputs: Inputs | None = None) -> pd.DataFrame:
    """List the collectives of a graph, and the work that each can hide behind. Nothing is run.

    A collective runs from the node that starts it to the first that waits for it. It is *exposed* if nothing
    is computed in between, so that the device does nothing but wait.

    Parameters
    ----------
    graph
        A graph module, a session (its present stage), or a model, which is traced.
    inputs
        For a model that is traced, as for :func:`fxlab.Session`.

    Returns
    -------
    pandas.DataFrame
        A row for each collective in the order of the graph, indexed by the ``node`` that starts it. Columns:
        ``kind`` (such as ``all_gather``), ``reduction`` (such as ``sum``), ``group`` (its title in torch,
        else its number), ``ranks`` (their count, where it is known), ``bytes`` (of the whole that is gathered
        or reduced), ``wait`` (the first node that waits for the result: a ``wait_tensor``, or else the first
        reader), ``between`` (the number of nodes that compute something meanwhile), ``flops_between`` and
        ``bytes_between`` (their operations, and the bytes that they read and write, as far as shapes tell),
        ``exposed``, ``pass`` and ``module_path``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> fxlab.steps.collectives(fxlab.symbolic_trace(nn.Linear(4, 8), torch.ones(2, 4))).empty
    True
    """
    given = resolved(graph, "graph")
    graph_module = unfolded(graph_of(given, "graph", inputs_of(given, inputs)))
    flops = TracedFlops(modules_by_path(graph_module))
    rows = {one.start.name: _row(one, flops) for one in collectives_of(graph_module.graph)}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*_OF_COLLECTIVES])
    return table.rename_axis("node").astype(_OF_COLLECTIVES)


def _row(one: Collective, flops: TracedFlops) -> list[object]:
    work = one.meanwhile
    moved = sum(tensor_bytes(known_result(value)) for node in work for value in (node, *node.all_input_nodes))
    wait = one.waits[0].name if one.waits else ""
    what = [one.kind, one.reduction, str(one.group), one.group.size, one.bytes, wait]
    cost = [len(work), flops.of(work) or 0, moved, not work]
    return [*what, *cost, pass_of(one.start), module_path(one.start)]
