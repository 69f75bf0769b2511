"""Uses that accept a slice of a larger result in place of a contiguous tensor.

The slice has the same values, but not the same strides: ``view`` may fail on it, and what ``reshape`` returns
may no longer share its memory.
"""

from torch.fx import Node

from fxlab.node_info import known_shape
from fxlab.operators import computes, operator_called, reads_layout, takes_any_strides
from fxlab.transformations.analysis.aliasing_and_writes import may_return_view
from fxlab.transformations.analysis.graph_analysis import GraphFacts


def needs_contiguous(node: Node, size: int, facts: GraphFacts) -> bool:
    """Tell whether what reads a node may depend on how its result lies in memory.

    Parameters
    ----------
    node
        The call of a linear layer, whose result is contiguous.
    size
        The size of its last dimension, which is what a slice takes out of a wider one.
    facts
        What is known of the graph module.
    """
    if facts.writes.is_written(node):
        return True
    pending, seen = [(node, True)], {node}
    while pending:
        value, only_viewed = pending.pop()
        for user in value.users:
            if user in seen or not _aliases(user, facts):
                continue
            seen.add(user)
            if only_viewed and _is_view_within(user, value, size):
                pending.append((user, True))
            elif takes_any_strides(operator_called(user, facts.graph_module)):
                pending.append((user, False))
            else:
                return True
    return False


def _aliases(user: Node, facts: GraphFacts) -> bool:
    """Tell whether a user may return memory of what it reads, so that strides matter to it or beyond it."""
    if user.op == "output":  # whoever called the graph may view what it returns
        return True
    return reads_layout(user) or may_return_view(user, facts.graph_module)


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
    """Return what is known of the last sizes that a view asks for."""
    if (shape := known_shape(view)) is not None:
        return shape
    sizes: object = view.args[1] if len(view.args) == 2 else view.args[1:]
    if isinstance(sizes, Node) and computes(sizes) == "add" and len(sizes.args) == 2:
        sizes = sizes.args[1]
    return tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
