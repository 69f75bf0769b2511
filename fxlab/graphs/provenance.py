"""Provenance: the original nodes that a changed node stands for."""

from functools import cached_property

from torch.fx import GraphModule, Node

from fxlab.graphs.matching import Matching, matched
from fxlab.transformations.journal.journal import Journal, Record


class Provenance:
    """Knows for each node of a transformed graph the nodes of the original that it stands for.

    The journal knows it, where passes have kept one: a merged linear stands for all that were merged. Else a
    node stands for the one that it matches.
    """

    def __init__(self, original: GraphModule, transformed: GraphModule) -> None:
        self._original, self._transformed = original, transformed
        self._nodes = {node.name: node for node in original.graph.nodes}
        self._positions = {name: position for position, name in enumerate(self._nodes)}
        self._records: dict[str, list[Record]] = {}
        self._replaced: dict[int, set[str]] = {}
        """What records have replaced, by their ``id``: the journals do not change meanwhile."""
        done_before = {(record.signature, record.marked) for record in Journal.of(original).records}
        for record in Journal.of(transformed).records:
            if (record.signature, record.marked) in done_before:
                continue
            # A node that reads another value than before still stands for itself.
            for name in record.stand_ins:
                self._records.setdefault(name, []).append(record)

    def of(self, node: Node) -> list[Node]:
        """Return the nodes of the original, in its order; none for a node that stands for nothing."""
        found: set[str] = set()
        pending, seen = [node.name], set[str]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            replaced = {other for record in self._records_of(name) for other in self._replaced_by(record)}
            if name in self._nodes and (name != node.name or name in replaced):
                found.add(name)
            pending += replaced
        if not found and (origins := self.matching.origins.get(node)):
            found = {other.name for other in origins}
        elif not found and node in self.matching.originals:
            found = {self.matching.originals[node].name}
        return [self._nodes[name] for name in sorted(found, key=self._positions.__getitem__)]

    def _replaced_by(self, record: Record) -> set[str]:
        if id(record) not in self._replaced:
            self._replaced[id(record)] = record.replaced
        return self._replaced[id(record)]

    def _records_of(self, name: str) -> list[Record]:
        """Return what was done to a node; what is opaque says less than a match does, if there is one."""
        records = self._records.get(name, [])
        if not any(record.is_opaque for record in records) or name not in self._matched:
            return records
        return [record for record in records if not record.is_opaque]

    @cached_property
    def _matched(self) -> frozenset[str]:
        return frozenset(node.name for node in (*self.matching.originals, *self.matching.origins))

    @cached_property
    def matching(self) -> Matching:
        """The nodes that match, whatever the journals say."""
        return matched(self._original, self._transformed)
