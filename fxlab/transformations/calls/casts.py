"""Casts: calls that return the numbers of a tensor in another dtype, and do nothing else."""

from typing import Any

import torch
from torch.fx import Node

from fxlab.operators import casts, computed_by, told_dtype


def is_cast(node: Node) -> bool:
    """Tell whether a node casts a tensor to a dtype, and moves it nowhere."""
    if not casts(node) or set(node.kwargs) - {"dtype"}:
        return False
    to = [*node.args[1:], *node.kwargs.values()]
    is_to_dtype = told_dtype(node) is not None and all(isinstance(value, torch.dtype) for value in to)
    return is_to_dtype or computed_by(node) == "type_as"


def uncast(value: Any) -> tuple[Any, tuple[Node, ...]]:
    """Return the value before casts, and the casts, last first."""
    found: list[Node] = []
    while isinstance(value, Node) and is_cast(value):
        found.append(value)
        value = value.args[0] if value.args else None
    return value, tuple(found)
