"""Uses that accept a slice of a larger result in place of a contiguous tensor, for passes that merge or fuse.

The slice has the same values, but not the same strides: ``view`` may fail on it, and the result of
``reshape`` may no longer share its memory.
"""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.base.torch_private import statically_known_true
from fxlab.operators import computes, operator_called, reads_layout, takes_any_strides
from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.aliasing_and_writes import may_return_view, written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts


def needs_contiguous(node: Node, size: int, facts: GraphFacts) -> bool:
    """Tell whether readers of a linear layer may depend on strides; ``size``: that of the last dimension."""
    if facts.writes.is_written(node):
        return True
    pending, seen = [(node, True)], {node}
    while pending:
        value, only_viewed = pending.pop()
        for user in value.users:
            # The caller of the graph may view its outputs.
            depends = user.op == "output" or reads_layout(user) or may_return_view(user, facts.graph_module)
            if user in seen or not depends:
                continue
            seen.add(user)
            if only_viewed and _is_view_within(user, value, size):
                pending.append((user, True))
            elif takes_any_strides(operator_called(user, facts.graph_module)):
                pending.append((user, False))
            else:
                return True
    return False


def layout_matters(node: Node, graph_module: GraphModule) -> bool:
    """Tell whether users of a node may depend on its result being contiguous."""
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            operator = operator_called(user, graph_module)
            if user in seen or (operator is not None and operator.computes == "contiguous"):
                continue
            seen.add(user)
            if user.op == "output" or reads_layout(user) or written_inputs(user, graph_module):
                return True
            if may_return_view(user, graph_module):
                if not takes_any_strides(operator):
                    return True
                pending.append(user)
    return False


def is_known_contiguous(node: Node) -> bool:
    """Tell whether a result is known to be contiguous for all sizes."""
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor) or result.layout is not torch.strided:
        metadata = node.meta.get("tensor_meta")
        return getattr(metadata, "memory_format", None) is torch.contiguous_format
    expected: Any = 1
    for size, stride in zip(reversed(result.shape), reversed(result.stride()), strict=True):
        if stride is not expected and not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True


def _is_view_within(user: Node, value: Node, size: int) -> bool:
    """Tell whether a node views a value such that no dimension spans the last one and another."""
    if computes(user) != "view" or not user.args or user.args[0] is not value:
        return False
    product = 1
    for trailing in reversed(_trailing_sizes(user)):
        if type(trailing) is not int or trailing < 1:
            return False
        product *= trailing
        if product >= size:
            return product == size
    return False


def _trailing_sizes(view: Node) -> tuple[object, ...]:
    """Return the known last sizes of a view's result."""
    if (shape := known_shape(view)) is not None:
        return shape
    sizes: object = view.args[1] if len(view.args) == 2 else view.args[1:]
    # As in x.view(x.shape[:-1] + (heads, size)).
    if isinstance(sizes, Node) and computes(sizes) == "add" and len(sizes.args) == 2:
        sizes = sizes.args[1]
    return tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
