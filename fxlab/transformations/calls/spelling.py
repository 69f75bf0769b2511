"""Names and dialects of calls, and casts: calls that return the numbers of a tensor in another dtype."""

from typing import Any

import torch
from torch.fx import Node

from fxlab.operators import casts, operator_of, told_dtype
from fxlab.torch_private import OpOverload


def computed_by(node: Node) -> str:
    """Return the one name of the operator that a node calls for its result.

    Empty where it writes its first argument, or is given an argument by a name that its schema does not know.
    """
    operator = operator_of(node)
    if operator is None or operator.writes_first or not operator.parameters.keys() >= node.kwargs.keys():
        return ""
    return operator.computes


def is_aten(node: Node) -> bool:
    """Tell whether a node calls an overload of torch's dispatcher, as exported graphs do."""
    return isinstance(node.target, OpOverload)


def is_cast(node: Node) -> bool:
    """Tell whether a node casts a tensor to a dtype, and moves it nowhere.

    Examples
    --------
    >>> graph = torch.fx.symbolic_trace(lambda x: x.float().to("cpu")).graph
    >>> [is_cast(node) for node in graph.nodes]
    [False, True, False, False]
    """
    if not casts(node) or set(node.kwargs) - {"dtype"}:
        return False
    to = [*node.args[1:], *node.kwargs.values()]
    is_to_dtype = told_dtype(node) is not None and all(isinstance(value, torch.dtype) for value in to)
    return is_to_dtype or computed_by(node) == "type_as"


def uncast(value: Any) -> tuple[Any, tuple[Node, ...]]:
    """Return what is cast, perhaps several times, and the casts, last first."""
    found: list[Node] = []
    while isinstance(value, Node) and is_cast(value):
        found.append(value)
        value = value.args[0] if value.args else None
    return value, tuple(found)
