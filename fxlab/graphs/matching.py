"""Nodes of two graphs in pairs, each with the same or a changed value: differences and comparisons ask."""

import uuid
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch.fx import GraphModule, Node

from fxlab.graphs.lineage import Lineage, is_same_capture, lineage
from fxlab.graphs.node_difference import inputs_in_order, what_differs
from fxlab.graphs.unfolded import is_in_body
from fxlab.operators.node_info import attribute_at

_KEPT = "pairs of nodes"
_BELOW: weakref.WeakKeyDictionary[GraphModule, weakref.ref[GraphModule]] = weakref.WeakKeyDictionary()
"""Graphs, and the graphs from which passes have made them."""


@dataclass(frozen=True)
class KnownPairs:
    """Nodes of a graph and nodes of another that compute the same, kept in ``meta`` of both."""

    of: str
    """A name of the pair of graphs."""
    originals: Mapping[str, str] = field(default_factory=dict)
    """Node of the transformed graph -> node of the original."""
    same: frozenset[str] = frozenset()
    """Nodes of this graph with the values of some node of the other."""


@dataclass(frozen=True)
class Matching:
    """Pairs of nodes of two graphs."""

    originals: dict[Node, Node]
    """Node of the transformed graph -> node of the original."""
    unchanged: frozenset[Node]
    """The nodes of the transformed graph that do the same as their originals, on the same values."""
    origins: Mapping[Node, Sequence[Node]] = field(default_factory=dict)
    """Node of the transformed graph -> its origins, if the two are captures of one model in two dialects."""


def match_nodes(original: GraphModule, transformed: GraphModule) -> Matching:
    """Match the nodes of two graphs.

    Inputs match by their order, other nodes by name; two captures of one model by
    torch's notes (:func:`lineage`). An erased node matches the one that is read in its stead: if an unchanged
    reader, such as an activation, now reads ``conv`` instead of ``norm``, and ``conv`` has changed, then
    ``conv`` computes the former result of ``norm``, with or without a journal.
    """
    named = {node.name: node for node in original.graph.nodes}
    if (known := _known_pairs(original, transformed)) is not None:
        kept = known[1]
        pairs = ((n, named.get(kept.originals.get(n.name, ""))) for n in transformed.graph.nodes)
        originals = _one_to_one({node: other for node, other in pairs if other is not None})
        return Matching(originals, frozenset(node for node in originals if node.name in kept.same))
    left = {node.name for node in transformed.graph.nodes}
    found = Lineage()
    if is_same_capture(original, transformed):
        originals = _through_stages(original, transformed) or {
            node: named[node.name] for node in transformed.graph.nodes if node.name in named
        }
    else:
        found = lineage(original, transformed)
        originals = found.pairs | {transformed.graph.output_node(): original.graph.output_node()}
    inputs = dict(zip(_placeholders(transformed), _placeholders(original), strict=False))
    originals |= inputs
    weights = _Weights(original, transformed, inputs)
    alike = {
        node
        for node, other in originals.items()
        if not what_differs(other, node, original, transformed) and weights.are_same(other, node)
    }
    read_instead: dict[Node, set[Node]] = defaultdict(set)
    for reader in alike:
        for before, after in zip(inputs_in_order(originals[reader]), inputs_in_order(reader), strict=True):
            if after not in alike:
                read_instead[after].add(before)
    for node, others in read_instead.items():
        if len(others) == 1 and (other := next(iter(others))).name not in left:
            originals[node] = other
    # Without readers, nothing tells which node a changed one replaces, if any.
    originals = {node: other for node, other in originals.items() if node in alike or node.users}
    originals = _one_to_one(originals)
    other_bodies = {
        user
        for node in transformed.graph.find_nodes(op="get_attr")
        if node not in alike and isinstance(attribute_at(transformed, str(node.target), None), GraphModule)
        for user in node.users
    }
    unchanged = frozenset(node for node in alike - other_bodies if _reads_the_same(node, originals))
    return Matching(originals, unchanged, found.origins)


def remember_source_graph(transformed: GraphModule, below: GraphModule) -> None:
    """Note the graph from which a pass has made another, so that matches lead through all stages."""
    if transformed is not below:
        _BELOW[transformed] = weakref.ref(below)


def _through_stages(original: GraphModule, transformed: GraphModule) -> dict[Node, Node]:
    """Match the nodes of two graphs through the stages in between, each of which keeps some readers."""
    between: list[GraphModule] = []
    below = _below(transformed)
    while below is not None and below is not original:
        between.append(below)
        below = _below(below)
    if below is None or not between:
        return {}
    originals = match_nodes(between[0], transformed).originals
    for upper, lower in zip(between, (*between[1:], original), strict=True):
        step = match_nodes(lower, upper).originals
        originals = {node: step[other] for node, other in originals.items() if other in step}
    return originals


def _below(graph_module: GraphModule) -> GraphModule | None:
    below = _BELOW.get(graph_module)
    return below() if below is not None else None


def keep_pairs(
    original: GraphModule,
    transformed: GraphModule,
    originals: Mapping[str, str],
    same: tuple[frozenset[str], frozenset[str]],
) -> None:
    """Keep for :func:`match_nodes` which nodes of two unrelated graphs match, and which of each agree."""
    name = uuid.uuid4().hex
    for module, known in (
        (original, KnownPairs(name, {}, same[0])),
        (transformed, KnownPairs(name, originals, same[1])),
    ):
        module.meta[_KEPT] = (*module.meta.get(_KEPT, ()), known)


def known_to_agree(original: GraphModule, transformed: GraphModule) -> frozenset[str]:
    """Return the names of nodes of two unrelated graphs whose values are known to be in both."""
    found = _known_pairs(original, transformed)
    if found is None:
        return frozenset()
    other, known = found
    taken = {node.name for node in transformed.graph.nodes}
    return known.same | (other.same - taken)


def _known_pairs(original: GraphModule, transformed: GraphModule) -> tuple[KnownPairs, KnownPairs] | None:
    """Return the pairs that an original and a transformed graph keep of each other."""
    of = {known.of: known for known in original.meta.get(_KEPT, ()) if not known.originals}
    pairs = ((of[known.of], known) for known in transformed.meta.get(_KEPT, ()) if known.of in of)
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


class _Weights:
    """The values of two graphs that follow from their tensors alone, such as weights of calls."""

    def __init__(self, original: GraphModule, transformed: GraphModule, inputs: Mapping[Node, Node]) -> None:
        self._modules = original, transformed
        self._constants = _constants(original) | _constants(transformed)
        both = {*inputs, *inputs.values()}
        self._new_inputs = {
            node for module in self._modules for node in _placeholders(module) if node not in both
        }

    def are_same(self, other: Node, node: Node) -> bool:
        """Tell whether a node of the transformed graph gets the same weights as one of the original."""
        return all(map(self._is_same, inputs_in_order(other), inputs_in_order(node)))

    def _is_same(self, before: Node, after: Node) -> bool:
        if not self._new_inputs.isdisjoint((before, after)):
            return False
        if not self._constants.issuperset((before, after)):
            return True
        differs = what_differs(before, after, *self._modules)
        is_moved = differs == ["target"] and before.op == "get_attr"
        return (not differs or is_moved) and self.are_same(before, after)


def _constants(module: GraphModule) -> set[Node]:
    """Return the nodes whose values follow from the tensors of a module alone."""
    found: set[Node] = set()
    for node in module.graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "get_attr" or (inputs and node.op != "output" and found.issuperset(inputs)):
            found.add(node)
    return found


def _placeholders(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.find_nodes(op="placeholder") if not is_in_body(node)]


def _one_to_one(originals: dict[Node, Node]) -> dict[Node, Node]:
    taken: set[Node] = set()
    result: dict[Node, Node] = {}
    for node, other in originals.items():
        if other not in taken:
            taken.add(other)
            result[node] = other
    return result


def _reads_the_same(node: Node, originals: dict[Node, Node]) -> bool:
    return node in originals and all(
        originals.get(after) is before
        for before, after in zip(inputs_in_order(originals[node]), inputs_in_order(node), strict=True)
    )
