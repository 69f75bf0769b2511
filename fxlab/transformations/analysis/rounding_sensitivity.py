"""Values whose last bit matters: downstream rounding to integers can turn it into a whole one."""

import torch
from torch.fx import GraphModule, Node

from fxlab.operators import casts, moves_elements, operator_called, rounds
from fxlab.transformations.analysis.node_shape import known_dtype


def rounding_readers(graph_module: GraphModule) -> dict[Node, Node]:
    """Return, for each value that is rounded to integers, a node that does it.

    Values count of which only what is computed of them, element by element, is rounded.
    """
    readers: dict[Node, Node] = {}
    for node in reversed(graph_module.graph.nodes):
        for user in node.users:
            if _rounds(user):
                readers[node] = user
            elif user in readers and _passes_on(user, graph_module):
                readers[node] = readers[user]
    return readers


def _rounds(node: Node) -> bool:
    dtype = known_dtype(node) if casts(node) else None
    is_integer = not (dtype is None or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return is_integer or rounds(node)


def _passes_on(node: Node, graph_module: GraphModule) -> bool:
    operator = operator_called(node, graph_module)
    if operator is None or known_dtype(node) == torch.bool:
        return False
    return operator.is_pointwise or casts(node) or moves_elements(node)
