"""Dtypes, casts, sizes and numbers of nodes, for passes, as far as they are known without a run."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from fxlab.base.torch_private import statically_known_true
from fxlab.models.graph_modules.graph_state import description
from fxlab.operators import casts, computed_by, is_of_python, returns_number, told_dtype
from fxlab.operators.node_info import known_result

_NUMBER_TYPES = (bool, int, float, complex)


_LIKE: weakref.WeakKeyDictionary[Graph, dict[object, torch.Tensor]] = weakref.WeakKeyDictionary()
"""Fake tensors that were made for a graph, by their description: torch takes a while for each."""


def with_last_size(node: Node, size: int) -> dict[str, torch.Tensor]:
    """Return the ``meta`` of a tensor like a node's result except its last size; empty if unknown.

    The sizes before it may be symbols: they are not compared, so that open sizes stay open.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return {}
    told = description(value)
    known = {} if isinstance(told, int) else _LIKE.setdefault(node.graph, {})  # nothing else is like it
    if (likeness := (told, size)) not in known:
        with torch.no_grad():
            known[likeness] = value.new_empty((*value.shape[:-1], size))
    return {"val": known[likeness]}


def is_same_size(a: Any, b: Any) -> bool:
    """Tell whether two sizes are known to be the same; symbolic ones are not fixed."""
    return bool(a is b or statically_known_true(a == b))


def are_same_sizes(a: Sequence[Any] | None, b: Sequence[Any] | None) -> bool:
    """Tell whether two shapes are known, and known to be the same."""
    return a is not None and b is not None and len(a) == len(b) and all(map(is_same_size, a, b))


def known_dtype(node: Node) -> torch.dtype | None:
    """Return the dtype of a node's result, if it is known or follows from the call."""
    dtype = getattr(known_result(node), "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else told_dtype(node)


def numbers(graph: Graph) -> set[Node]:
    """Return the nodes of a graph whose results are known to be Python numbers or sizes, not tensors."""
    found: set[Node] = set()
    for node in graph.nodes:
        if (result := known_result(node)) is not None:
            is_number = not hasattr(result, "dtype")
        elif node.op == "placeholder":
            is_number = node.type in _NUMBER_TYPES
        else:
            inputs, is_python = node.all_input_nodes, node.op == "call_function" and is_of_python(node.target)
            of_numbers = is_python and bool(inputs) and found.issuperset(inputs)
            is_number = of_numbers or returns_number(node)
        if is_number:
            found.add(node)
    return found


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
