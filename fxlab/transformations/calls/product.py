"""Decomposed products of batches of matrices."""

from typing import Any

import torch
from torch.fx import Node

from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.node_shape import are_same_sizes

_ATEN = torch.ops.aten
_KEEP_ELEMENTS = (_ATEN.view.default, _ATEN.expand.default, _ATEN.clone.default)
"""The parts of a decomposed product of batches besides the product; they keep all elements in order."""


def operands_of_batches(node: Node) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """Return the operands of a decomposed product of matrices, and the nodes that belong to it alone.

    ``matmul`` is decomposed to a view of ``bmm``, which reads views of its operands. ``None`` for any other
    view, and for a product that is broadcast.
    """
    bmm = node.args[0]
    if not isinstance(bmm, Node):
        return None
    left_inner, right_inner = list[Node](), list[Node]()
    left, right = (
        _seen_whole(operand, chain)
        for operand, chain in zip(bmm.args, (left_inner, right_inner), strict=True)
    )
    shapes = [known_shape(each) if isinstance(each, Node) else None for each in (node, *bmm.args)]
    if left is None or right is None or any(shape is None for shape in shapes):
        return None
    result, flat_left, flat_right = (shape or () for shape in shapes)
    expected = {
        node: (*result[:-2], flat_left[-2], flat_right[-1]),
        left: (*result[:-2], *flat_left[-2:]),
        right: (*result[:-2], *flat_right[-2:]),
    }
    if not all(are_same_sizes(known_shape(value), shape) for value, shape in expected.items()):
        return None  # it is broadcast, or another view
    return left, right, (bmm, *left_inner, *right_inner)


def _seen_whole(operand: Any, inner: list[Node]) -> Node | None:
    """Return the source of an operand past one view and copies; a second view is the model's own."""
    while isinstance(operand, Node) and operand.target in _KEEP_ELEMENTS and _keeps_elements(operand):
        if operand.target is _ATEN.view.default and any(node.target is operand.target for node in inner):
            break
        inner.append(operand)
        operand = operand.args[0]
    return operand if isinstance(operand, Node) else None


def _keeps_elements(node: Node) -> bool:
    """Tell whether a node returns each element that it reads once: an expansion may repeat some."""
    if node.target is not _ATEN.expand.default:
        return True
    value = node.args[0]
    shapes = [known_shape(each) for each in (node, value) if isinstance(each, Node)]
    return len(shapes) == 2 and are_same_sizes(*shapes)
