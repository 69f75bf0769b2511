"""``fxlab.node_values``: the value of a node, its weights, and the distance from the original's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import fx, nn

from fxlab.base.checks import type_error
from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.results import Result
from fxlab.base.words import counted
from fxlab.front_desk.sources import Model, SessionLike, graph_of, inputs_of, is_session, resolved
from fxlab.graphs.provenance import Provenance
from fxlab.graphs.unfolded import unfolded
from fxlab.models.parallel.ranks import why_not_judged
from fxlab.models.running.arguments import Inputs, call_arguments, given_inputs
from fxlab.models.state.tensor_state import tensors_of
from fxlab.operators.node_info import attribute_at, nodes_at, unknown_node
from fxlab.validation.tensor_values.statistics import (
    Histogram,
    Statistics,
    histogram_of,
    readable,
    statistics_of,
)
from fxlab.validation.tensor_values.visited_run import values_at, visit_values
from fxlab.values.tensors import tensors_by_path, wide_device

MOST_CELLS = 256
"""In each direction."""


@dataclass(frozen=True, eq=False)
class Slice:
    """A two-dimensional slice of a tensor; where that is large, a cell stands for a block of elements.

    Attributes
    ----------
    rows, columns : int or None
        The dimensions that are shown; ``None`` for rows of a tensor that has too few.
    index : tuple of int or None
        The index in each dimension; ``None`` in those that are shown.
    cells : torch.Tensor
        Of each block the element with the largest absolute value, float64; NaN if one is.
    row_block, column_block : int
        The elements in a cell, downwards and to the right; the last cells may have fewer.
    shape : tuple of int
        The size of the whole slice.
    """

    rows: int | None
    columns: int | None
    index: tuple[int | None, ...]
    cells: torch.Tensor
    row_block: int
    column_block: int
    shape: tuple[int, int]


def slice_of(
    tensor: torch.Tensor,
    rows: int | None = None,
    columns: int | None = None,
    index: Mapping[int, int] | None = None,
    most: int = MOST_CELLS,
) -> Slice:
    """Return a slice of a tensor: two dimensions (left out, the last two), at an index in each of the others.

    ``index``: dimension -> index; left out, zero. ``most``: the most cells in each direction.
    """
    values = readable(tensor)
    rank = values.dim()
    chosen = {_dimension(d, rank, "index"): place for d, place in (index or {}).items()}
    right = None if columns is None else _dimension(columns, rank, "columns")
    down = None if rows is None else _dimension(rows, rank, "rows")
    if right is None:
        right = next((d for d in reversed(range(rank)) if d != down and d not in chosen), None)
    if down is None:
        down = next((d for d in reversed(range(rank)) if d != right and d not in chosen), None)
    if down is not None and down == right:
        raise ValueError(f"rows, columns: expected two dimensions, got {down} twice.")
    places: list[int | None] = []
    for d, size in enumerate(values.shape):
        if d in (down, right):
            if d in chosen:
                raise ValueError(f"index: dimension {d} is shown, so it has no index.")
            places.append(None)
            continue
        place = chosen.get(d, 0)
        if isinstance(place, bool) or not isinstance(place, int):
            raise type_error("index", f"an int for dimension {d}", place)
        if not -size <= place < size and (size or d in chosen):
            raise ValueError(f"index: dimension {d} has {size} elements, got {place}.")
        places.append(place % size if size else 0)
    is_there = all(size for size, place in zip(values.shape, places, strict=True) if place is not None)
    shown = tuple(slice(None) if place is None else place for place in places)
    # Where another dimension is empty, there is no element at any index.
    matrix = values[shown] if is_there else values.new_empty((0,) * places.count(None))
    if down is not None and right is not None and down > right:
        matrix = matrix.T
    if matrix.dim() < 2:
        matrix = matrix.reshape(-1, 1) if right is None else matrix.reshape(1, -1)
    height, width = matrix.shape
    blocks = -(-height // most) or 1, -(-width // most) or 1
    return Slice(down, right, tuple(places), _pooled(matrix, *blocks), *blocks, (height, width))


def _dimension(value: object, rank: int, argument: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise type_error(argument, "the number of a dimension", value)
    if not -rank <= value < rank:
        raise ValueError(f"{argument}: the tensor has {rank} dimensions, got {value}.")
    return value % rank


def _pooled(matrix: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """Return the element of the largest absolute value of each block; NaN wins."""
    if not matrix.dtype.is_floating_point:  # the largest of whole numbers takes ten times as long
        small = matrix.dtype.itemsize <= 2
        matrix = matrix.float() if small else matrix.to(wide_device(matrix.device)).to(torch.float64)
    high = _blocks(_blocks(matrix, 0, down, "amax"), 1, right, "amax").cpu().to(torch.float64)
    low = _blocks(_blocks(matrix, 0, down, "amin"), 1, right, "amin").cpu().to(torch.float64)
    return torch.where(high >= -low, high, low)


def _blocks(matrix: torch.Tensor, dim: int, size: int, which: str) -> torch.Tensor:
    """Return the largest or least element of each block in one direction."""
    if size == 1:
        return matrix
    full = matrix.shape[dim] // size
    shape = [*matrix.shape[:dim], full, size, *matrix.shape[dim + 1 :]]
    parts = [getattr(matrix.narrow(dim, 0, full * size).reshape(shape), which)(dim + 1)]
    if full * size < matrix.shape[dim]:
        rest = matrix.narrow(dim, full * size, matrix.shape[dim] - full * size)
        parts.append(getattr(rest, which)(dim, keepdim=True))
    return torch.cat(parts, dim)


Kind = Literal["value", "original", "difference", "weight"]


@dataclass(frozen=True, eq=False)
class TensorValue:
    """One tensor of a node: of its value, or one of its weights.

    Attributes
    ----------
    kind : str
        ``"value"``, ``"original"`` (the original's value there), ``"difference"`` (the value minus the
        original's) or ``"weight"`` (a parameter or buffer).
    name : str
        The path inside the value (``"output"`` for a bare tensor), or the name of the weight.
    tensor : torch.Tensor
        The tensor.
    """

    kind: Kind
    name: str
    tensor: torch.Tensor

    @cached_property
    def statistics(self) -> Statistics:
        """Its statistics."""
        return statistics_of(self.tensor)

    @cached_property
    def histogram(self) -> Histogram:
        """The distribution of its finite elements."""
        return histogram_of(self.tensor, self.statistics)

    def slice(
        self,
        rows: int | None = None,
        columns: int | None = None,
        index: Mapping[int, int] | None = None,
        most: int = MOST_CELLS,
    ) -> Slice:
        """Return two of its dimensions as at most ``most`` x ``most`` cells, at an index in each other."""
        return slice_of(self.tensor, rows, columns, index, most)


@dataclass(frozen=True, eq=False, repr=False)
class NodeValues(Result):
    """The result of :func:`fxlab.node_values`.

    Attributes
    ----------
    node : str
        The name of the node.
    tensors : tuple of TensorValue
        Its value, with that of the original and the difference where there is one, and its weights.
    notes : tuple of str
        The parts that are missing, and why.
    """

    node: str
    tensors: tuple[TensorValue, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = (f"{each.kind} {each.name}" for each in self.tensors)
        return "; ".join((f"{self.node}: {', '.join(told) or 'no values'}", *self.notes))

    def of(self, kind: Kind = "value", name: str | None = None) -> TensorValue:
        """Return one of the tensors; the first of a kind if no name is given.

        Raises
        ------
        ValueError
            If there is none.
        """
        for found in self.tensors:
            if found.kind == kind and name in (None, found.name):
                return found
        there = ", ".join(f"{found.kind} {found.name}" for found in self.tensors)
        wanted = kind if name is None else f"{kind} {name}"
        why = "".join(f" {note}" for note in self.notes)
        raise ValueError(f"{self.node} has no {wanted}. There are: {there or 'none'}.{why}")

    @property
    def table(self) -> pd.DataFrame:
        """A row of statistics for each tensor, indexed by ``kind`` and ``name``."""
        rows = [{"kind": t.kind, "name": t.name, **asdict(t.statistics)} for t in self.tensors]
        columns = ["kind", "name", *Statistics.__dataclass_fields__]
        return pd.DataFrame(rows, columns=columns).set_index(["kind", "name"])


def node_values(
    graph: Model | SessionLike,
    node: str | fx.Node,
    inputs: Inputs | None = None,
    *,
    original: Model | None = None,
) -> NodeValues:
    """Return the value of a node on some inputs, and the weights that it holds.

    The graph is run up to the node; each value is dropped after its last use, and the model, the inputs and
    the random number generators are afterwards as they were.

    Parameters
    ----------
    graph
        A session, of which the present graph is run; a ``torch.fx.GraphModule``; or a model, which is traced.
    node
        The node, or its name.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those of the
        session.
    original
        A graph to compare with; of a session, left out, its own original if passes have changed it. The
        node's counterpart there is found as :func:`compare_nodes` finds it.

    Returns
    -------
    NodeValues
        The tensors, their statistics as a table, and notes on missing ones.

    Raises
    ------
    TypeError
        If ``node`` is neither a node nor a name, or no model can be called with ``inputs``.
    ValueError
        If there is no such node, or the model does not run on the inputs.

    Examples
    --------
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> found = node_values(graph, "_1", torch.tensor([[1.0, float("nan")]]))
    >>> found.of("value").statistics.nan, found.of("value").slice().shape
    (3, (1, 3))
    """
    found = resolved(graph, "graph")
    if not isinstance(node, str | fx.Node):
        raise type_error("node", "a node or its name", node)
    inputs = inputs_of(found, given_inputs(inputs))
    if original is None and is_session(found) and found.original is not found.graph_module:
        original = found.original
    graph_module = graph_of(found, "graph", inputs)
    other = None if original is None else graph_of(original, "original", inputs)
    return values_in(graph_module, str(getattr(node, "name", node)), inputs, other)


def values_in(
    graph_module: fx.GraphModule, name: str, inputs: Inputs | None, original: fx.GraphModule | None = None
) -> NodeValues:
    """Return the values of a node of a graph that is there already; see :func:`fxlab.node_values`."""
    found = nodes_at(graph_module.graph, name)
    if not found:
        shown = unfolded(graph_module).graph
        if any(each.name == name for each in shown.nodes):
            raise ValueError(f"node: {name!r} is in a body, of which no values are kept. Give its call.")
        raise unknown_node(shown, name)
    node = found[-1]
    notes: list[str] = []
    tensors: list[TensorValue] = []
    if node.op == "output":
        notes.append("The output node hands on values of other nodes; look at those.")
    elif why := _why_not_run(graph_module, inputs):
        notes.append(why)
    else:
        assert inputs is not None
        tensors += _results(graph_module, node, inputs, original, notes)
    weights = _weights(graph_module, node, is_run=bool(tensors))
    notes += [
        f"The weight {name} is on the meta device and has no values." for name, w in weights if w.is_meta
    ]
    tensors += [TensorValue("weight", name, weight) for name, weight in weights if not weight.is_meta]
    return NodeValues(node.name, tuple(tensors), tuple(notes))


def statistics_by_node(graph_module: fx.GraphModule, inputs: Inputs) -> dict[str, list[Statistics]]:
    """Return the statistics of each node's tensors, by its name, from one run; nothing else is kept."""
    found: dict[str, list[Statistics]] = {}

    def note(node: fx.Node, value: Any) -> None:
        found[node.name] = []
        for tensor in tensors_by_path(value).values():
            # A sparse or wrapped tensor has none.
            with suppress(ValueError, RuntimeError, NotImplementedError):
                found[node.name].append(statistics_of(tensor))

    visit_values(graph_module, inputs, note)
    return found


def _why_not_run(graph_module: fx.GraphModule, inputs: Inputs | None) -> str:
    if inputs is None:
        return (
            "There are no inputs to run the model on: give the session some, or node_values(..., inputs=...)."
        )
    call_arguments(inputs)
    if any(tensor.is_meta for tensor in tensors_of(graph_module)):
        return "The model is on the meta device: it has no weights to compute the value with."
    why = why_not_judged(graph_module)
    return why[:1].upper() + why[1:]


def _results(
    graph_module: fx.GraphModule,
    node: fx.Node,
    inputs: Inputs,
    original: fx.GraphModule | None,
    notes: list[str],
) -> list[TensorValue]:
    here = values_at(graph_module, node, inputs)
    if not here:
        notes.append("The node's value holds no tensors or numbers.")
        return []
    tensors = [TensorValue("value", path, tensor) for path, tensor in here.items()]
    if original is None or original is graph_module:
        return tensors
    provenance = Provenance(original, graph_module)
    other = provenance.matching.originals.get(node)
    if other is None:
        others = provenance.of(node)
        names = ", ".join(other.name for other in others)
        notes.append(
            f"It stands for {counted(len(others), 'node')} of the graph it is compared with ({names}): no "
            "difference to show."
            if others
            else "The graph it is compared with has no node that it stands for."
        )
        return tensors
    there = values_at(original, other, inputs, "original")
    for path, tensor in here.items():
        if path not in there:
            notes.append(f"{other.name}, which it is compared with, has no {path}.")
            continue
        tensors.append(TensorValue("original", path, there[path]))
        if tensor.shape == there[path].shape and (difference := _difference(tensor, there[path])) is not None:
            tensors.append(TensorValue("difference", path, difference))
        else:
            notes.append(
                f"{path}: no difference to show between shapes {tuple(tensor.shape)} and "
                f"{tuple(there[path].shape)} ({tensor.dtype}, {there[path].dtype})."
            )
    return tensors


def _difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """Return one tensor minus another; equal infinities differ by nothing, and NaN by NaN."""
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return None
    dtype = torch.promote_types(a.dtype, b.dtype) if not (a.is_quantized or b.is_quantized) else torch.float32
    if dtype is torch.bool:
        return a.to(torch.int8) - b.to(torch.int8)
    if dtype.is_floating_point and dtype.itemsize < 4:
        dtype = torch.float32
    wide, other = (t.dequantize() if t.is_quantized else t.to(dtype) for t in (a, b))
    return torch.where(wide == other, torch.zeros((), dtype=dtype, device=wide.device), wide - other)


def _weights(graph_module: fx.GraphModule, node: fx.Node, *, is_run: bool) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters and buffers of the module that a node calls, or the one that it gets.

    After a run, the tensor that a node gets is its value.
    """
    if node.op not in ("call_module", "get_attr"):
        return []
    held = attribute_at(graph_module, str(node.target), None)
    if node.op == "get_attr":
        return [(str(node.target), held)] if isinstance(held, torch.Tensor) and not is_run else []
    if not isinstance(held, nn.Module):
        return []
    return [*held.named_parameters(), *held.named_buffers()]
