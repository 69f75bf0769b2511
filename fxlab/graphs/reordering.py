"""Graphs that differ in the order of their nodes alone: a verdict proves them equal without a run."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.base.words import counted
from fxlab.graphs.node_difference import inputs_in_order, what_differs
from fxlab.models.parallel.collectives import collective_kind, collectives_of, is_wait
from fxlab.transformations.analysis.aliasing_and_writes import written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.journal.name_order import moved, moved_nodes


@dataclass(frozen=True)
class Reordering:
    """Two graphs that make the same calls on the same values, in another order."""

    moved: tuple[str, ...]
    """The moved nodes, as few as explain the new order."""
    collectives: int = 0
    """The number of collectives whose starts were reordered."""

    @property
    def words(self) -> str:
        """The proof in words."""
        return (
            f"only the order changed: {counted(len(self.moved), 'node')} moved, and data dependences and "
            "writes prove that every call reads the same values; nothing was run"
        )


def reordering(original: GraphModule, transformed: GraphModule) -> Reordering | None:
    """Prove that two graphs differ in the order of their nodes alone, and compute the same; ``None`` if not.

    Every node has a partner of its name that does the same to the same nodes. Each value has been written
    equally often before a node reads it. Calls that write, draw random numbers, have other effects or are
    unknown keep their order. A wait counts as a read of the collective's inputs.
    """
    ours = {node.name: node for node in original.graph.nodes}
    theirs = {node.name: node for node in transformed.graph.nodes}
    if ours.keys() != theirs.keys() or list(ours) == list(theirs):
        return None
    if any(_differ(node, theirs[name], original, transformed) for name, node in ours.items()):
        return None
    if _named(original.graph.find_nodes(op="placeholder")) != _named(
        transformed.graph.find_nodes(op="placeholder")
    ):
        return None
    sides = _Side(original), _Side(transformed)
    if sides[0].effects != sides[1].effects or sides[0].epochs != sides[1].epochs:
        return None
    starts = [_named(filter(collective_kind, module.graph.nodes)) for module in (original, transformed)]
    return Reordering(moved_nodes(original, transformed), len(moved(*starts)))


def _differ(node: Node, other: Node, original: GraphModule, transformed: GraphModule) -> bool:
    read = _named(inputs_in_order(node)) != _named(inputs_in_order(other))
    return read or bool(what_differs(node, other, original, transformed))


class _Side:
    """The facts that must be the same in both graphs."""

    def __init__(self, graph_module: GraphModule) -> None:
        facts = GraphFacts(graph_module)
        nodes = list(graph_module.graph.nodes)
        self.effects = _named(node for node in nodes if _has_effect(node, facts))
        """The nodes that keep their order."""
        reads = {node: list(node.all_input_nodes) for node in nodes}
        for one in collectives_of(graph_module.graph):
            for wait in one.waits:
                reads[wait] = [*reads[wait], *one.start.all_input_nodes]
        epoch = facts.writes.epoch
        self.epochs = {
            node.name: sorted((value.name, epoch(value, node)) for value in read)
            for node, read in reads.items()
        }
        """How often each value was written, and the state of torch changed, before a node reads it."""


def _has_effect(node: Node, facts: GraphFacts) -> bool:
    """Tell whether a node has, or may have, effects beyond a result computed from its inputs."""
    if node.op in ("placeholder", "get_attr", "output") or is_wait(node):
        return False
    if collective_kind(node):
        return bool(written_inputs(node, facts.graph_module))
    return why_impure(node, facts) is not None


def _named(nodes: Iterable[Node]) -> list[str]:
    return [node.name for node in nodes]
