"""A view of calls that replace elements by a number, ``masked_fill`` and ``where``, for attention masks."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxlab.operators import computed_by, filled_with
from fxlab.transformations.analysis.first_column import first_column
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.calls.casts import is_cast


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
