"""Heads of keys and values that are repeated, so that each of several queries has its own."""

import operator
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from fxlab.node_info import known_shape
from fxlab.operators import argument, reshapes
from fxlab.torch_private import is_concrete_int, statically_known_true
from fxlab.transformations.views.layer import computed_by

_ALL = slice(None, None, None)


@dataclass(frozen=True)
class RepeatedHeads:
    """Heads of shape ``(batch, heads, length, size)``, each of which is repeated in a row."""

    node: Node
    """The repeated heads, of shape ``(batch, heads * count, length, size)``."""
    value: Node
    inner: tuple[Node, ...]
    """What is computed between the two, last first."""


def as_repeated_heads(node: Node) -> RepeatedHeads | None:
    """Return heads that are repeated, in any dialect; ``None`` for any other node.

    They are inserted a dimension, expanded and reshaped, or repeated by ``repeat_interleave``. Their shapes
    must be known.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> def repeated(x):
    ...     return x[:, :, None].expand(1, 2, 3, 5, 8).reshape(1, 6, 5, 8)
    >>> traced = torch.fx.symbolic_trace(repeated)
    >>> _ = ShapeProp(traced).propagate(torch.randn(1, 2, 5, 8))
    >>> [found.value for node in traced.graph.nodes if (found := as_repeated_heads(node))]
    [x]
    """
    shape = known_shape(node)
    if shape is None or len(shape) != 4:
        return None
    if computed_by(node) == "repeat_interleave":
        return _interleaved(node, shape)
    expanded, inner = node, list[Node]()
    while reshapes(expanded) and isinstance(expanded.args[0], Node):
        inner.append(expanded)
        expanded = expanded.args[0]
    single = expanded.args[0] if computed_by(expanded) == "expand" else None
    value = single.args[0] if isinstance(single, Node) and _inserts_third(single) else None
    if not isinstance(single, Node) or not isinstance(value, Node):
        return None
    batch, heads, *rest = known_shape(value) or (None, None)
    wide = known_shape(expanded)
    if wide is None or len(wide) != 5 or len(rest) != 2 or not is_concrete_int(wide[2]):
        return None
    is_plain = _is_same(wide, (batch, heads, wide[2], *rest)) and _is_same(
        shape, (batch, heads * wide[2], *rest)
    )
    between = (*inner[1:], expanded, single)
    keeps = all(_is_same(known_shape(each), wide) for each in inner[1:])
    return RepeatedHeads(node, value, between) if is_plain and keeps else None


def _interleaved(node: Node, shape: tuple[Any, ...]) -> RepeatedHeads | None:
    value, count = node.args[0], argument(node, "repeats")
    before = known_shape(value) if isinstance(value, Node) else None
    if not isinstance(value, Node) or type(count) is not int or before is None or len(before) != 4:
        return None
    is_of_heads = argument(node, "dim") in (1, -3)
    expected = (before[0], before[1] * count, *before[2:])
    return RepeatedHeads(node, value, ()) if is_of_heads and _is_same(shape, expected) else None


def _inserts_third(node: Node) -> bool:
    """Tell whether a node inserts a dimension behind the heads."""
    if computed_by(node) == "unsqueeze":
        return argument(node, "dim") in (2, -3)
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple):
        return False
    index = node.args[1]
    others = (*index[:2], *index[3:])
    return 3 <= len(index) <= 5 and index[2] is None and all(each == _ALL for each in others)


def _is_same(a: Any, b: Any) -> bool:
    if a is None or len(a) != len(b):
        return False
    return all(x is y or statically_known_true(x == y) for x, y in zip(a, b, strict=True))
