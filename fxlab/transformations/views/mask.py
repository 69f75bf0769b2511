"""Masks, for ``FuseAttention``: calls that replace elements by a number, and the first column of conditions.

A causal mask of any size excludes no query's first key.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.torch_private import statically_known_true
from fxlab.operators import argument, casts, computed_by, computes, filled_with
from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.dtypes_and_sizes import is_cast, known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts


@dataclass(frozen=True)
class Fill:
    """A number that replaces elements of a value."""

    where: Node
    """The truth values that select them."""
    number: float
    keeps: bool
    """Whether these are the elements that stay."""
    keeps_a_column: bool
    """Whether the first element of each row is known to stay."""


def as_fill(node: Node, facts: GraphFacts) -> tuple[Any, Fill] | None:
    """Return the value whose elements a node replaces by a number, and the fill."""
    name = computed_by(node)
    if name not in ("masked_fill", "where") or len(node.args) != 3 or node.kwargs:
        return None
    condition, scores, number = node.args if name == "where" else (node.args[1], node.args[0], node.args[2])
    value, keeps = _number_in(number, facts), name == "where"
    if value is None and keeps:
        scores, value, keeps = number, _number_in(scores, facts), False
        if value is None:
            return None
    if not isinstance(condition, Node):
        return None
    column = first_column(condition, facts)
    stays = column is not None and bool((column if keeps else column.logical_not()).all())
    return scores, Fill(condition, math.nan if value is None else value, keeps, stays)


def _number_in(value: Any, facts: GraphFacts) -> float | None:
    """Return an argument that is a number, or the number that fills a new tensor, in its dtype."""
    if not isinstance(value, Node):
        return float(value) if type(value) in (int, float) else None
    dtype = known_dtype(value)
    if dtype is None or not dtype.is_floating_point or facts.writes.is_written(value):
        return None
    if is_cast(value) or computed_by(value) in ("alias", "lift_fresh_copy", "tensor", "scalar_tensor"):
        made_of = value.args[0] if value.args else None
    else:
        made_of = filled_with(value)
    number = _number_in(made_of, facts)
    return (
        None if number is None else float(torch.tensor(number, dtype=torch.float64, device="cpu").to(dtype))
    )


_DEPTH = 40
_WHOLE_ROWS = frozenset({"contiguous", "clone", "alias", "detach", "expand", "expand_as", "lift_fresh_copy"})
_TRIANGLES = frozenset({"tril", "triu"})
_LOGIC = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "bitwise_not", "neg", "sub", "rsub"})


def first_column(value: Any, facts: GraphFacts, depth: int = 0) -> torch.Tensor | None:
    """Return all numbers at index 0 of the last dimension of a tensor that depends on constants alone.

    ``None`` if they are not known.

    Slices may take any rows of a constant, and any number of columns with the first among them.
    """
    if not isinstance(value, Node) or depth > _DEPTH or facts.writes.is_written(value):
        return None
    if value.op == "get_attr":
        return _of_attribute(value, facts)
    if value.op not in ("call_function", "call_method") or value.kwargs.get("out") is not None:
        return None
    fill, dtype = filled_with(value), known_dtype(value)
    if isinstance(fill, int | float):  # in its own dtype: later operators compute otherwise on bools
        return None if dtype is None else torch.tensor([fill], dtype=dtype, device="cpu")
    source = next((each for each in value.args if isinstance(each, Node)), None)
    is_kept = _keeps_first_column(value)
    if not (is_kept or casts(value) or computes(value) in (*_LOGIC, *_TRIANGLES)):
        return None
    column = first_column(source, facts, depth + 1)
    if column is None or is_kept:
        return column
    return _of_triangle(value, column) if computes(value) in _TRIANGLES else _computed(value, column)


def _of_attribute(node: Node, facts: GraphFacts) -> torch.Tensor | None:
    tensor = facts.attribute(node)
    if type(tensor) is not torch.Tensor or tensor.is_meta or tensor.layout is not torch.strided:
        return None
    if tensor.requires_grad or not tensor.dim() or not tensor.numel():
        return None
    return tensor.select(-1, 0).reshape(-1)


def _of_triangle(node: Node, column: torch.Tensor) -> torch.Tensor | None:
    """Return the first column above or below a diagonal, of any number of rows."""
    diagonal = argument(node, "diagonal")
    if type(diagonal) is not int:
        return None
    if computes(node) == "tril":
        return column if diagonal >= 0 else None
    return torch.zeros_like(column[:1]) if diagonal > 0 else None


def _computed(node: Node, column: torch.Tensor) -> torch.Tensor | None:
    """Return the first column of a cast, or of an elementwise call on a tensor and numbers."""
    if casts(node):
        dtype = known_dtype(node)
        return None if dtype is None else column.to(dtype)
    if node.kwargs or sum(isinstance(each, Node) for each in node.args) > 1:
        return None
    args = (column if isinstance(each, Node) else each for each in node.args)
    target: Any = node.target
    function = target if node.op == "call_function" else getattr(torch.Tensor, target)
    found: torch.Tensor = function(*args)
    return found


def _keeps_first_column(node: Node) -> bool:
    """Tell whether the first column of a view, a copy or a part comes from the first column of its source."""
    name, source = computes(node), node.args[0] if node.args else None
    shape = known_shape(source) if isinstance(source, Node) else None
    if name in _WHOLE_ROWS:
        return True
    if not shape:
        return False
    if name == "unsqueeze":
        return argument(node, "dim") not in (-1, len(shape))
    if name in ("view", "reshape"):
        after = known_shape(node)
        return after is not None and len(after) > 0 and statically_known_true(after[-1] == shape[-1])
    if name == "slice":
        dim, start = argument(node, "dim"), argument(node, "start")
        return dim not in (-1, len(shape) - 1) or start is None or (type(start) is int and start == 0)
    return name == "getitem" and _is_first_kept(node.args[1], len(shape))


def _is_first_kept(index: Any, dimensions: int) -> bool:
    """Tell whether a Python index keeps the last dimension with its first element."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not all(item is ... or item is None or type(item) in (slice, int) for item in items):
        return False
    missing = dimensions - sum(item is not None and item is not ... for item in items)
    rest = [slice(None)] * missing
    place = next((place for place, item in enumerate(items) if item is ...), None)
    items = [*items, *rest] if place is None else [*items[:place], *rest, *items[place + 1 :]]
    last = items[-1]
    return type(last) is slice and last.start in (None, 0) and last.step in (None, 1)
