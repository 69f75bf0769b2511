"""The passes and modules of a step whose nodes say nothing: they follow from its order and its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import fx

from fxlab.node_info import is_backward, known_shape
from fxlab.operators import computes

_SEEDS = ("ones_like", "full_like", "new_ones", "new_full")
C = TypeVar("C")


def backward_nodes(graph: fx.Graph) -> frozenset[fx.Node]:
    """Return the nodes of the backward pass of a step: those that are noted, or else by its order.

    Autograd begins with a gradient of one, of the shape of a loss of one element that is returned; all that
    follows in the order of the graph is the backward pass.
    """
    nodes = list(graph.nodes)
    if noted := frozenset(filter(is_backward, nodes)):
        return noted
    losses = [node for node in graph.output_node().all_input_nodes if _is_number(node)]
    seeds = {user for loss in losses for user in loss.users if computes(user) in _SEEDS}
    if not seeds:
        return frozenset()
    return frozenset(nodes[min(nodes.index(seed) for seed in seeds) :])


def weights_by_gradient(graph: fx.Graph, backward: frozenset[fx.Node]) -> frozenset[fx.Node]:
    """Return the inputs that a flat step returns gradients of, in their order; none if shapes do not tell."""
    gradients = [node for node in graph.output_node().all_input_nodes if node in backward]
    inputs = iter(graph.find_nodes(op="placeholder"))
    found = []
    for gradient in gradients:
        shape = known_shape(gradient)
        match = next((node for node in inputs if shape is not None and known_shape(node) == shape), None)
        if match is None:
            return frozenset()
        found.append(match)
    return frozenset(found)


def between(
    nodes: Sequence[fx.Node], known: Mapping[fx.Node, C], common: Callable[[list[C]], C]
) -> dict[fx.Node, C]:
    """Give each node of a stretch of the graph what the known nodes before and after it have in common."""
    before: dict[fx.Node, C] = {}
    last: C | None = None
    for node in nodes:
        last = known.get(node, last)
        if last is not None:
            before[node] = last
    found: dict[fx.Node, C] = {}
    following: C | None = None
    for node in reversed(nodes):
        if node in known:
            following = found[node] = known[node]
            continue
        around = [chain for chain in (before.get(node), following) if chain is not None]
        found[node] = common(around) if len(around) == 2 else common([])
    return found


def _is_number(node: fx.Node) -> bool:
    shape = known_shape(node)
    is_call = node.op in ("call_function", "call_method")
    return is_call and shape is not None and math.prod(shape) == 1
