"""Upper bounds on the absolute values of a tensor, as far as the graph tells."""

import math
from typing import Any

import torch
from torch.fx import Node

from fxlab.operators import is_of_torch
from fxlab.transformations.analysis.dropout import argument
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.node_shape import called_name, known_dtype
from fxlab.transformations.journal.module_tree import find_module, split_path

_KEEPS_VALUES_TEXT = """
    getitem expand expand_as broadcast_to unsqueeze squeeze view reshape flatten transpose permute
    contiguous clone detach narrow select repeat tril triu neg
"""
_KEEPS_VALUES = frozenset(_KEEPS_VALUES_TEXT.split())
_CASTS = frozenset({"to", "type", "type_as", "float", "double", "half", "bfloat16"})
_FILLED: dict[str, float] = {
    "zeros": 0.0,
    "zeros_like": 0.0,
    "new_zeros": 0.0,
    "ones": 1.0,
    "ones_like": 1.0,
    "new_ones": 1.0,
}
_DEPTH = 40


def largest_magnitude(value: Any, facts: GraphFacts, depth: int = 0) -> float:
    """Return a bound of the absolute values of a number or of what a node computes; infinite if unknown."""
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
    if value.op == "call_function" and not is_of_torch(value.target):
        return math.inf
    bound = _of_call(value, facts, depth + 1)
    return bound if bound <= _largest(known_dtype(value)) else math.inf


def _of_call(node: Node, facts: GraphFacts, depth: int) -> float:
    name = called_name(node)
    parts = [largest_magnitude(part, facts, depth) for part in node.args[:3]] if _combines(name) else []
    if name in _FILLED:
        return _FILLED[name]
    if name in ("full", "full_like", "new_full"):
        return largest_magnitude(argument(node, 1 if name != "new_full" else 2, "fill_value", None), facts)
    if name in ("tensor", "scalar_tensor") and node.args:
        return largest_magnitude(node.args[0], facts)
    if name in _KEEPS_VALUES or name in _CASTS:
        return largest_magnitude(node.args[0], facts, depth) if node.args else math.inf
    if name == "where" and len(parts) == 3 and not node.kwargs:
        return max(parts[1:])
    if name == "masked_fill" and len(parts) == 3:
        return max(parts[0], parts[2])
    if node.kwargs or len(parts) != 2:
        return math.inf
    if name in ("mul", "multiply"):
        return parts[0] * parts[1] if math.inf not in parts else math.inf
    return sum(parts)


def _combines(name: str) -> bool:
    return name in ("where", "masked_fill", "mul", "multiply", "add", "sub", "rsub")


def _of_attribute(node: Node, facts: GraphFacts) -> float:
    parent, name = split_path(str(node.target))
    tensor = getattr(find_module(facts.graph_module, parent), name, None)
    if not isinstance(tensor, torch.Tensor) or tensor.is_meta or tensor.requires_grad or tensor.is_complex():
        return math.inf
    largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
    return largest if math.isfinite(largest) else math.inf


def _largest(dtype: torch.dtype | None) -> float:
    """Return the largest number of a dtype; casts to one that is not known may overflow."""
    if dtype is None:
        return 0.0
    return torch.finfo(dtype).max if dtype.is_floating_point else math.inf
