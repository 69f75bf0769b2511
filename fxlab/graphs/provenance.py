"""The nodes of the original behind a node of a stage: tables, values of nodes and pages ask for them."""

from collections import defaultdict

from torch.fx import GraphModule, Node

from fxlab.base.exchanged import cached_property
from fxlab.graphs.matching import Matching, match_nodes
from fxlab.transformations.journal.journal import Journal


class Provenance:
    """Knows for each node of a transformed graph the nodes of the original that it stands for.

    The journals of passes know them: a merged linear stands for all that were merged. Without a journal, a
    node stands for the one that it matches.
    """

    def __init__(self, original: GraphModule, transformed: GraphModule) -> None:
        self._original, self._transformed = original, transformed
        self._nodes = {node.name: node for node in original.graph.nodes}
        self._positions = {name: position for position, name in enumerate(self._nodes)}
        self._records: dict[str, list[tuple[bool, set[str]]]] = defaultdict(list)
        """For each node that stands for others: whether a record of it is opaque, and the others."""
        done_before = {(record.signature, record.marked) for record in Journal.of(original).records}
        for record in Journal.of(transformed).records:
            if (record.signature, record.marked) in done_before:
                continue
            replaced = record.replaced
            # A node that reads another value than before still stands for itself.
            for name in record.stand_ins:
                self._records[name].append((record.is_opaque, replaced))

    def of(self, node: Node) -> list[Node]:
        """Return the nodes of the original, in its order; none for a node that stands for nothing."""
        found: set[str] = set()
        pending, seen = [node.name], set[str]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            replaced = self._replaced_by(name)
            if name in self._nodes and (name != node.name or name in replaced):
                found.add(name)
            pending += replaced
        if not found and (origins := self.matching.origins.get(node)):
            found = {other.name for other in origins}
        elif not found and node in self.matching.originals:
            found = {self.matching.originals[node].name}
        return [self._nodes[name] for name in sorted(found, key=self._positions.__getitem__)]

    def _replaced_by(self, name: str) -> set[str]:
        """Return the nodes that a node replaces, by opaque records only without a match, which says more."""
        records = self._records.get(name, [])
        if any(is_opaque for is_opaque, _ in records) and name in self._matched:
            records = [(is_opaque, replaced) for is_opaque, replaced in records if not is_opaque]
        return set[str]().union(*(replaced for _, replaced in records))

    @cached_property
    def _matched(self) -> frozenset[str]:
        return frozenset(node.name for node in (*self.matching.originals, *self.matching.origins))

    @cached_property
    def matching(self) -> Matching:
        """The nodes that match, regardless of the journals."""
        return match_nodes(self._original, self._transformed)
