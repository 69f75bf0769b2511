"""``fxlab.memory``: memory over a graph, computed of shapes alone, and the peak during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.multiprocessing.reductions import StorageWeakRef

from fxlab.base.first_use import pd
from fxlab.base.results import Result
from fxlab.base.torch_logs import torch_logs_silent
from fxlab.base.torch_private import FakeTensorMode, HigherOrderOperator, TorchDispatchMode, pytree
from fxlab.base.units import with_unit
from fxlab.front_desk.sources import Model, SessionLike, graph_of, inputs_of, resolved
from fxlab.models.graph_modules.bodies import run_under
from fxlab.models.running.arguments import Inputs, bound_values, given_arguments
from fxlab.models.running.step_guards import GUARDS
from fxlab.models.running.step_record import IN_PLACE
from fxlab.operators.node_info import is_backward, known_result, module_path, state_path
from fxlab.validation.verdicts.own_run import OtherTensors
from fxlab.values.tensors import known_number, stored_parts, tensor_leaves

PARAMETER, BUFFER, STATE, INPUT = "parameters", "buffers", "optimizer state", "inputs"
ACTIVATION, GRADIENT, NEW_STATE, OUTPUT, TEMPORARY = (
    *("activations", "gradients", "new state", "outputs", "temporaries"),
)
KINDS = (PARAMETER, BUFFER, STATE, INPUT, ACTIVATION, GRADIENT, NEW_STATE, OUTPUT, TEMPORARY)
"""The kinds of memory, each a column."""
FORWARD, BACKWARD, UPDATE = "forward", "backward", "optimizer"
_KIND_OF_INPUT = {
    **{"parameter": PARAMETER, "ParamAOTInput": PARAMETER, "buffer": BUFFER, "BufferAOTInput": BUFFER},
    "state": STATE,
}
_RESULTS = ("grad of ", GRADIENT), ("new ", NEW_STATE)
_NUMBER = torch.ops.aten._local_scalar_dense.default


@dataclass(frozen=True, repr=False)
class MemoryUse(Result):
    """The result of :func:`fxlab.memory`. ``str()`` gives one line for people."""

    _table: pd.DataFrame = field(repr=False)
    alive: pd.DataFrame = field(repr=False)
    """All that is alive at the peak, the largest first: the node that makes it, ``kind``, ``module_path``,
    ``bytes``, ``kept_until`` (the node that reads it last; empty for values kept to the end)."""
    peak: int
    """The most bytes that are alive at once."""
    peak_node: str
    """The node that runs then."""

    @property
    def table(self) -> pd.DataFrame:
        """A row for each node, in the order of the graph: ``pass``, ``module_path``, ``live`` (bytes while it
        runs), the same by kind, ``made`` and ``freed`` (bytes).
        """
        return self._table

    def __str__(self) -> str:
        sizes = self.table.loc[[self.peak_node], list(KINDS)].to_numpy()[0].tolist()
        parts = sorted(zip(sizes, KINDS, strict=True), reverse=True)
        words = ", ".join(f"{with_unit(size, 'B')} {kind}" for size, kind in parts if size)
        where = " ".join(filter(None, (self.table["pass"][self.peak_node], self.peak_node)))
        return f"{with_unit(self.peak, 'B')} at {where}: {words}"


def memory(graph: Model | SessionLike, inputs: Inputs | None = None) -> MemoryUse:
    """Tell which tensors are alive at each node of a graph, from shapes alone.

    The graph runs on tensors without data, so it may be larger than this machine, or on the meta device.
    Views count once, with the tensor whose memory they share, and new values of weights, buffers and
    optimizer state with the old ones, as training writes them in place. The workspace of a kernel, and memory
    that an allocator keeps back, do not count. Values are freed after the node that reads them last, as the
    code of a graph module does; inputs and outputs stay.

    Parameters
    ----------
    graph
        A step of :func:`fxlab.trace_step`, any other graph module, a session (its present stage), or a model,
        which is traced.
    inputs
        As for :func:`fxlab.Session`. Left out, those of the session or step, or the shapes that were noted
        when the graph was traced.

    Returns
    -------
    MemoryUse
        Its ``table`` and ``peak``. Kinds are ``parameters``, ``buffers``, ``optimizer state`` and
        ``inputs``; ``activations`` are made in the forward pass and read in the backward pass;
        ``gradients`` and ``new state`` are results of a step, ``outputs`` of others; else ``temporaries``.

    Raises
    ------
    ValueError
        If the shape of an input is not known, or that of a result.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    >>> step = fxlab.trace_step(model, torch.ones(32, 64), loss=lambda output: output.square().mean())
    >>> use = fxlab.memory(step)
    >>> int(use.table["parameters"].iloc[0]) == 4 * sum(p.numel() for p in model.parameters())
    True
    >>> use.table["activations"].idxmax()
    'addmm_1'
    """
    given = resolved(graph, "graph")
    known = inputs_of(given, inputs)
    graph_module = graph_of(given, "graph", known)
    return _Run(graph_module).over(known)


@dataclass(eq=False)
class _Held:
    """Memory that some values of the graph share."""

    storage: torch.UntypedStorage
    """Held, so that no other memory takes its number."""
    maker: fx.Node
    """The node that makes it, or reads it first if it is given."""
    kind: str = TEMPORARY
    last: fx.Node | None = None
    is_given: bool = False
    """Whether it is there before the graph runs, and stays."""
    is_written: bool = False
    """Whether it is copied into an input, and freed."""

    @property
    def number(self) -> int:
        return int(self.storage._cdata)

    @property
    def size(self) -> int:
        return self.storage.nbytes()


class _Run(OtherTensors):
    """A run of a graph on tensors without data."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        # Targets of nodes may hold real tensors, such as constants.
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._given: dict[fx.Node, Any] = {}
        self._held: dict[int, _Held] = {}
        self._replaced: list[torch.UntypedStorage] = []
        """Held for their numbers, of writes in place."""
        self._of_node: dict[fx.Node, list[_Held]] = {}
        self._inside: dict[fx.Node, int] = {}
        self._state: dict[torch.UntypedStorage, str] = {}
        """The memory of weights that the running node reads, and its kind."""

    def over(self, inputs: Inputs | None) -> MemoryUse:
        """Run it on inputs, or on the shapes that were noted."""
        # Torch reports operators that need data: the noted shapes stand in for them.
        with torch.no_grad(), self._mode, torch_logs_silent():
            self._give(inputs)
            self.run(enable_io_processing=False)
        last = _last_reads(self.graph)
        reads: dict[int, list[fx.Node | None]] = {}
        for node, held in self._of_node.items():
            for one in held:
                reads.setdefault(one.number, []).append(last[node])
        for number, found in reads.items():
            known = [read for read in found if read is not None]
            self._held[number].last = max(known) if len(known) == len(found) else None
        self._write_results(self.graph)
        self._name_kinds(self.graph)
        return self._counted(self.graph)

    @property
    def _memories(self) -> list[_Held]:
        return list(dict.fromkeys(self._held.values()))

    def _give(self, inputs: Inputs | None) -> None:
        placeholders = self.graph.find_nodes(op="placeholder")
        if inputs is None:
            self._given = {node: self._of_shape(known_result(node), node) for node in placeholders}
        else:
            assert isinstance(self.module, fx.GraphModule)
            values = bound_values(self.module, *given_arguments(inputs))
            faked = (pytree.tree_map_only(torch.Tensor, self._mode.from_tensor, value) for value in values)
            self._given = dict(zip(placeholders, faked, strict=False))

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor without data."""
        faked: torch.Tensor = self._mode.from_tensor(tensor)
        kind = PARAMETER if isinstance(tensor, nn.Parameter) else BUFFER
        self._state |= dict.fromkeys(storages(faked), kind)
        return faked

    def _of_shape(self, known: Any, node: fx.Node) -> Any:
        """Return tensors of the shapes that were noted for a node."""

        def made(value: Any) -> Any:
            if not hasattr(value, "shape"):
                return value
            strides = value.stride() if callable(value.stride) else value.stride
            device = getattr(value, "device", "cpu")
            sizes, steps = (list[Any](map(known_number, numbers)) for numbers in (value.shape, strides))
            if unknown := next((size for size in (*sizes, *steps) if isinstance(size, str)), None):
                raise ValueError(
                    f"The shape of {node.name!r} depends on data ({unknown}), so its memory is not known "
                    "before a run. torch.profiler.profile(profile_memory=True) measures a run on data."
                )
            return torch.empty_strided(sizes, steps, dtype=value.dtype, device=device)

        if known is None:
            raise ValueError(
                f"The shape of {node.name!r} is not known. Give inputs: fxlab.memory(model, inputs)."
            )
        return pytree.tree_map(made, known)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and note the memory of its result."""
        self._state.clear()
        with PeakMemory() as inside:
            result = self._result(n)
        given = [*self._state.items()]
        if n.op in ("placeholder", "get_attr"):
            given += [(storage, _kind_of_given(n)) for storage in storages(result)]
        for storage, kind in given:
            self._held.setdefault(storage._cdata, _Held(storage, n, kind, is_given=True))
        found = {storage._cdata: storage for storage in storages(result)}
        made = sum(storage.nbytes() for number, storage in found.items() if number not in self._held)
        if n.meta.get(IN_PLACE):
            self._write(found, n.args[0])
        new = {number: storage for number, storage in found.items() if number not in self._held}
        self._held |= {number: _Held(storage, n) for number, storage in new.items()}
        self._of_node[n] = list(dict.fromkeys(self._held[number] for number in found))
        self._inside[n] = max(0, inside.peak - made)
        return result

    def _write(self, found: dict[int, torch.UntypedStorage], first: Any) -> None:
        """Place results in the memory of the first argument, or of those in a list."""
        written = [
            held for node in (first if isinstance(first, list) else [first]) for held in self._of_node[node]
        ]
        for (number, storage), held in zip(found.items(), written, strict=False):
            if number not in self._held and storage.nbytes() == held.size:
                self._held[number] = held
                self._replaced.append(storage)

    def _result(self, node: fx.Node) -> Any:
        if node in self._given:
            return self._given[node]
        if node.op == "output" or node.target in GUARDS:
            return None
        if node.target is _NUMBER:
            return 1.0
        try:
            return super().run_node(node)
        except Exception:
            if node.op == "get_attr":
                raise
            if known_result(node) is None and not node.users:
                return None  # a check of the data
            return self._of_shape(known_result(node), node)

    def _write_results(self, graph: fx.Graph) -> None:
        """Replace a step's inputs by their new values as soon as these exist."""
        inputs = {getattr(n.meta.get("desc"), "target", None) for n in graph.find_nodes(op="placeholder")}
        for name, node in _results(graph):
            if name.startswith("new ") and name.removeprefix("new ") in inputs:
                for held in self._of_node[node]:
                    held.last, held.is_written = node, True

    def _name_kinds(self, graph: fx.Graph) -> None:
        for name, node in _results(graph):
            kind = next((kind for start, kind in _RESULTS if name.startswith(start)), OUTPUT)
            for held in self._of_node[node]:
                held.kind = held.kind if held.is_given or held.is_written else kind
        read = {read for node in graph.nodes if pass_of(node) == BACKWARD for read in node.all_input_nodes}
        backward = {held.number for node in read for held in self._of_node[node]}
        for held in self._memories:
            if held.kind == TEMPORARY and pass_of(held.maker) == FORWARD and held.number in backward:
                held.kind = ACTIVATION

    def _counted(self, graph: fx.Graph) -> MemoryUse:
        nodes = list(graph.nodes)
        freed: dict[fx.Node, list[_Held]] = {}
        for held in self._memories:
            if held.last is not None and not held.is_given:
                freed.setdefault(held.last, []).append(held)
        live = Counter[str]()
        for held in filter(lambda held: held.is_given, self._memories):
            live[held.kind] += held.size
        rows, peak, at_peak = [], -1, nodes[-1]
        for node in nodes:
            made = [held for held in self._of_node[node] if held.maker is node and not held.is_given]
            for held in made:
                live[held.kind] += held.size
            gone = freed.get(node, ())
            now = sum(live.values()) + self._inside[node]
            row = {kind: live[kind] for kind in KINDS}
            row[TEMPORARY] += self._inside[node]
            rows.append(
                {
                    "pass": pass_of(node),
                    "module_path": module_path(node),
                    "live": now,
                    **row,
                    "made": sum(held.size for held in made),
                    "freed": sum(held.size for held in gone),
                }
            )
            if now > peak:
                peak, at_peak = now, node
            for held in gone:
                live[held.kind] -= held.size
        table = pd.DataFrame(rows, index=pd.Index([node.name for node in nodes], name="node"))
        alive = [
            held
            for held in self._memories
            if held.is_given or (held.maker <= at_peak and (held.last is None or at_peak <= held.last))
        ]
        return MemoryUse(table, _alive_table(alive), peak, at_peak.name)


def _kind_of_given(node: fx.Node) -> str:
    if node.op == "get_attr":
        return BUFFER
    described = node.meta.get("desc")
    return _KIND_OF_INPUT.get(str(getattr(described, "kind", type(described).__name__)), INPUT)


def _alive_table(alive: Sequence[_Held]) -> pd.DataFrame:
    by_size = sorted(alive, key=lambda held: -held.size)
    rows = [
        {
            "kind": held.kind,
            "module_path": _owner_of(held.maker),
            "bytes": held.size,
            "kept_until": "" if held.last is None or held.is_given else held.last.name,
        }
        for held in by_size
    ]
    index = pd.Index([held.maker.name for held in by_size], name="node")
    return pd.DataFrame(rows, index=index, columns=["kind", "module_path", "bytes", "kept_until"])


def _owner_of(node: fx.Node) -> str:
    path = state_path(node)
    return module_path(node) if path is None else path.rpartition(".")[0]


def _last_reads(graph: fx.Graph) -> dict[fx.Node, fx.Node | None]:
    """Return the node that reads each value last; ``None`` for values that the graph returns."""
    last: dict[fx.Node, fx.Node | None] = {}
    for node in graph.nodes:
        last[node] = node  # an unused value is freed at once
        for read in node.all_input_nodes:
            last[read] = None if node.op == "output" else node
    return last


def _results(graph: fx.Graph) -> Iterator[tuple[str, fx.Node]]:
    """Yield the results of a graph, by name where they have one."""
    value = graph.output_node().args[0]
    unnamed = (("", one) for one in graph.output_node().all_input_nodes)
    items = value.items() if isinstance(value, dict) else unnamed
    yield from ((str(name), node) for name, node in items if isinstance(node, fx.Node))


def pass_of(node: fx.Node) -> str:
    """Return the pass of a step that a node belongs to; empty for inputs, attributes and the output."""
    if node.op in ("placeholder", "get_attr", "output"):
        return ""
    if is_backward(node):
        return BACKWARD
    stack = node.meta.get("nn_module_stack") or {}
    return UPDATE if next(iter(stack), "") == UPDATE else FORWARD


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operators return within it, as long as something refers to them.

    The same on every device: memory that an allocator keeps back, or a kernel's workspace, does not count.
    ``peak``: the most bytes that were alive at once since the mode was entered, or since :meth:`restart`.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def restart(self) -> None:
        """Start again, with the tensors that are made from here on."""
        self.peak = 0
        self._alive.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A result in the memory of an argument is a view, or was written in place.
        given = {storage._cdata for storage in storages(args, kwargs)}
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*run_under(self, args), **run_under(self, kwargs))
        result = func(*args, **kwargs)
        for storage in storages(result):
            if storage._cdata not in given:
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[storage._cdata] = (reference, storage.nbytes())
        self._alive = {
            key: (reference, size)
            for key, (reference, size) in self._alive.items()
            if not reference.expired()  # type: ignore[no-untyped-call]
        }
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def storages(*values: Any) -> list[torch.UntypedStorage]:
    """Return the memory of all tensors in values."""
    return [storage for tensor in tensor_leaves(values) for storage in _storages(tensor)]


def _storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    # A mode that watches for writes takes a read of the storage for one.
    with torch._C.DisableTorchFunction():
        parts = [tensor] if tensor.layout is torch.strided else stored_parts(tensor)
        return [part.untyped_storage() for part in parts]
