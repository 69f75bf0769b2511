"""Dtypes and numbers as far as they are known without running a graph."""

import torch
from torch.fx import Graph, Node

from fxlab.node_info import known_result
from fxlab.operators import is_of_python, returns_number

_NUMBER_TYPES = (bool, int, float, complex)
_INTEGER_METHODS = frozenset(
    {"long", "int", "short", "char", "byte", "bool", "argmax", "argmin", "argsort", "bincount"}
)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_not"})


def with_last_size(value: torch.Tensor, size: int) -> torch.Tensor:
    """Return what is known of a tensor like another, but for the size of its last dimension.

    The sizes before it are taken over as they are: a symbolic one is not compared with anything, so that
    nothing is fixed that the graph leaves open.

    Parameters
    ----------
    value
        A fake tensor of shape ``(*, n)``.
    size
        The last size of what is returned.
    """
    with torch.no_grad():
        return value.new_empty((*value.shape[:-1], size))


def known_dtype(node: Node) -> torch.dtype | None:
    """Return the dtype of a node's result, where it is known or told by what the node calls."""
    dtype = getattr(known_result(node), "dtype", None)
    if isinstance(dtype, torch.dtype):
        return dtype
    casts = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, torch.dtype)]
    if node.op == "call_method" and casts:
        return casts[0]
    called = called_name(node)
    if node.op in ("call_method", "call_function") and called in _COMPARISONS:
        return torch.bool
    if node.op in ("call_method", "call_function") and called in _INTEGER_METHODS:
        return torch.int64
    return None


def numbers(graph: Graph) -> set[Node]:
    """Return the nodes of a graph whose results are known to be Python numbers or sizes, not tensors."""
    found: set[Node] = set()
    for node in graph.nodes:
        result = known_result(node)
        if result is not None:
            is_number = not hasattr(result, "dtype")
        else:
            is_number = _makes_number(node) or _keeps_numbers(node, found)
        if is_number:
            found.add(node)
    return found


def called_name(node: Node) -> str:
    """Return the bare name of the function or method that a node calls; empty for other nodes."""
    if node.op == "call_method":
        return str(node.target)
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", ""))
    return ""


def _makes_number(node: Node) -> bool:
    if node.op == "placeholder":
        return node.type in _NUMBER_TYPES
    return returns_number(node)


def _keeps_numbers(node: Node, numbers: set[Node]) -> bool:
    inputs = node.all_input_nodes
    called = node.op == "call_function" and is_of_python(node.target)
    return called and bool(inputs) and numbers.issuperset(inputs)
