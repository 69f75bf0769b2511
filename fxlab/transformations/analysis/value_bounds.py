"""Bounds on values for passes, as far as the graph tells: magnitudes of tensors, signs of numbers."""

import math
from typing import Any

import torch
from torch.fx import Node

from fxlab.operators import casts, computes, describes, filled_with, moves_elements, returns_number
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts

_COMBINES = {"where": 3, "masked_fill": 3, "mul": 2, "add": 2, "sub": 2, "rsub": 2}
"""Operators whose result is bounded by bounds of their arguments, with the number of these."""
_DEPTH = 40
_POSITIVE = ("mul", "div", "sqrt", "sym_float", "sym_sqrt", "float")
"""Operators that map positive numbers to positive numbers."""


def largest_magnitude(value: Any, facts: GraphFacts, depth: int = 0) -> float:
    """Return a bound of the absolute values of a number or of a node's result; infinite if unknown."""
    if isinstance(value, bool | int | float):
        return abs(value) if math.isfinite(value) else math.inf
    if not isinstance(value, Node) or depth > _DEPTH or facts.writes.is_written(value):
        return math.inf
    if known_dtype(value) == torch.bool:
        return 1.0
    if value.op == "get_attr":
        return _of_attribute(value, facts)
    if value.op not in ("call_function", "call_method") or value.kwargs.get("out") is not None:
        return math.inf
    bound = _of_call(value, facts, depth + 1)
    return bound if bound <= _largest(known_dtype(value)) else math.inf


def _of_call(node: Node, facts: GraphFacts, depth: int) -> float:
    name = computes(node)
    if (number := filled_with(node)) is not None:
        return largest_magnitude(number, facts)
    if name in ("tensor", "scalar_tensor") and node.args:
        return largest_magnitude(node.args[0], facts)
    if casts(node) or moves_elements(node) or name in ("neg", "abs"):
        return largest_magnitude(node.args[0], facts, depth) if node.args else math.inf
    if node.kwargs or len(node.args) != _COMBINES.get(name):
        return math.inf
    parts = [largest_magnitude(part, facts, depth) for part in node.args]
    if name == "where":
        return max(parts[1:])
    if name == "masked_fill":
        return max(parts[0], parts[2])
    if name == "mul":
        return parts[0] * parts[1] if math.inf not in parts else math.inf
    return sum(parts)


def _of_attribute(node: Node, facts: GraphFacts) -> float:
    tensor = facts.attribute(node)
    if not isinstance(tensor, torch.Tensor) or tensor.is_meta or tensor.requires_grad or tensor.is_complex():
        return math.inf
    # The absolute value of the smallest whole number is no number of its dtype.
    largest = max(-float(tensor.min()), float(tensor.max())) if tensor.numel() else 0.0
    return largest if math.isfinite(largest) else math.inf


def _largest(dtype: torch.dtype | None) -> float:
    """Return up to which number a dtype neither overflows nor wraps around; an unknown dtype may at any.

    Integers wrap around above their largest one, and unsigned ones below zero: -1 becomes 255.
    """
    if dtype is None:
        return 0.0
    if dtype.is_floating_point:
        return torch.finfo(dtype).max
    return torch.iinfo(dtype).max if dtype.is_signed and not dtype.is_complex else -1.0


def is_positive(value: Any, facts: GraphFacts, depth: int = 0) -> bool:
    """Tell whether a number computed from sizes is positive, given that they are."""
    if not isinstance(value, Node):
        return type(value) in (int, float) and 0 < value < math.inf
    if value not in facts.numbers or depth > _DEPTH:
        return False
    if describes(value):
        return returns_number(value)
    name = computes(value)
    if name == "getitem":
        return isinstance(value.args[0], Node) and describes(value.args[0])
    if name == "pow":
        return is_positive(value.args[0], facts, depth + 1) and type(value.args[1]) in (int, float)
    return name in _POSITIVE and all(is_positive(each, facts, depth + 1) for each in value.args)
