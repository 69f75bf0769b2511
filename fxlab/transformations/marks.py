"""Marks: which transformations have changed a node, kept as a set of signatures in ``node.meta``.

A copy of a graph shares the values of ``node.meta`` with the original, so a set is never changed in place:
every change assigns a new one.
"""

from torch.fx import GraphModule, Node

KEY = "transformations"
"""The key of the set of signatures in ``node.meta``."""


def marks(node: Node) -> frozenset[str]:
    """Return the signatures that mark a node."""
    return frozenset(map(str, node.meta.get(KEY) or ()))


def marks_of(graph_module: GraphModule) -> dict[str, tuple[str, ...]]:
    """Return the signatures of each marked node, by the names of the nodes."""
    return {node.name: tuple(sorted(marks(node))) for node in graph_module.graph.nodes if node.meta.get(KEY)}


def add_mark(node: Node, signature: str) -> None:
    """Mark a node with a signature."""
    node.meta[KEY] = {*marks(node), signature}


def remove_mark(node: Node, signature: str) -> None:
    """Remove a signature from a node; an unmarked node keeps no trace of marks."""
    remaining = set(marks(node) - {signature})
    if remaining:
        node.meta[KEY] = remaining
    else:
        node.meta.pop(KEY, None)
