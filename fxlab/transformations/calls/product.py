"""The canonical form of decomposed linear layers and of products of batches of matrices."""

from typing import Any

import torch
from torch.fx import Node

from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.node_shape import are_same_sizes
from fxlab.transformations.calls.term import Reading, Term

_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN._unsafe_view.default)
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


def of_addmm(calls: Reading, node: Node) -> Term | None:
    """Read a product with a transposed matrix and an added bias as a linear layer."""
    if len(node.args) != 3 or node.kwargs:
        return None
    bias, value, matrix = node.args
    weight = _transposed_weight(calls, matrix)
    if weight is None:
        return None
    return Term("linear", {"self": value, "weight": weight[0], "bias": bias}, (node, weight[1]), rank=2)


def _transposed_weight(calls: Reading, matrix: Any) -> tuple[Any, Node] | None:
    term = calls.term(matrix)
    if term is None or term.name != "permute" or term.args["dims"] != (1, 0) or not isinstance(matrix, Node):
        return None
    return term.args["self"], matrix


def of_view(calls: Reading, node: Node) -> Term | None:
    """Read a decomposed linear layer or product of batches, which ends with a view."""
    inner = node.args[0] if node.target in _VIEWS else None
    if not isinstance(inner, Node) or len(inner.users) != 1:
        return None
    if inner.target is _ATEN.bmm.default:
        product = operands_of_batches(node)
        if product is None:
            return None
        left, right, own = product
        return Term("matmul", {"self": left, "other": right}, (node, *own), rank=3)
    if inner.target is _ATEN.addmm.default:
        bias, flat, matrix = inner.args[:3]
    elif inner.target is _ATEN.mm.default:
        bias, (flat, matrix) = None, inner.args[:2]
    else:
        return None
    weight = _transposed_weight(calls, matrix)
    is_view = isinstance(flat, Node) and flat.target in _VIEWS
    if not isinstance(flat, Node) or not is_view or (weight is None and bias is not None):
        return None
    value = flat.args[0]
    shape, before = calls.shape(node), calls.shape(value)
    if shape is None or before is None or len(shape) != len(before) or shape[:-1] != before[:-1]:
        return None
    # Layers with one input share the view, which then stays for the others.
    views = (flat,) if len(flat.users) == 1 else ()
    if weight is None:
        return Term("matmul", {"self": value, "other": matrix}, (node, inner, *views), rank=len(before))
    own = (node, inner, *views, weight[1])
    args = {"self": value, "weight": weight[0], **({} if bias is None else {"bias": bias})}
    return Term("linear", args, own, rank=len(before))
