"""Products of matrices, as attention is written with them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxlab.node_info import known_shape
from fxlab.operators import argument, computed_by
from fxlab.torch_private import statically_known_true

_ATEN = torch.ops.aten
_KEEP_ELEMENTS = (_ATEN.view.default, _ATEN.expand.default, _ATEN.clone.default)
"""What a product of batches is decomposed to, beside the product: all elements stay, in their order."""


@dataclass(frozen=True)
class Product:
    """A product of two batches of matrices, without broadcasting where it is decomposed."""

    node: Node
    left: Node
    right: Node
    inner: tuple[Node, ...] = ()
    """Nodes that belong to the product alone: views of its operands, and the product of what they return."""


def as_product(node: Node) -> Product | None:
    """Return a product of matrices, in any dialect; ``None`` for any other node.

    ``matmul`` is decomposed to a view of ``bmm``, which reads views of its operands.

    Examples
    --------
    >>> graph = torch.fx.symbolic_trace(lambda a, b: a @ b).graph
    >>> [(product.left, product.right) for node in graph.nodes if (product := as_product(node))]
    [(a, b)]
    """
    if computed_by(node) in ("matmul", "bmm") and len(node.args) == 2 and not node.kwargs:
        left, right = node.args
        return Product(node, left, right) if isinstance(left, Node) and isinstance(right, Node) else None
    bmm = node.args[0] if node.target is _ATEN.view.default else None
    if not isinstance(bmm, Node) or bmm.target is not _ATEN.bmm.default:
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
    if not all(_is_same(known_shape(value), shape) for value, shape in expected.items()):
        return None  # it is broadcast, or another view
    return Product(node, left, right, (bmm, *left_inner, *right_inner))


def transposed(node: Node) -> Node | None:
    """Return what a node transposes in its last two dimensions; ``None`` if it does something else."""
    value, shape = node.args[0] if node.args else None, known_shape(node)
    if not isinstance(value, Node) or shape is None or node.kwargs:
        return None
    if node.op == "call_function" and node.target is getattr:
        return value if node.args[1] == "mT" else None
    swapped = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    if node.target is _ATEN.permute.default:
        return value if _from_start(argument(node, "dims"), shape) == swapped else None
    if computed_by(node) != "transpose" or len(node.args) != 3:
        return None
    return value if {*_from_start(node.args[1:], shape)} == {*swapped[-2:]} else None


def _from_start(dims: Any, shape: tuple[Any, ...]) -> list[Any]:
    return [dim + len(shape) if isinstance(dim, int) and dim < 0 else dim for dim in dims]


def _seen_whole(operand: Any, inner: list[Node]) -> Node | None:
    """Return what an operand is a view or a copy of, with all of its elements in their order.

    A product takes one view of an operand; a second one is the model's own.
    """
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
    return len(shapes) == 2 and _is_same(*shapes)


def _is_same(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x is y or statically_known_true(x == y) for x, y in zip(a, b, strict=True))
