"""What a page reads out of the parts that it was sent: the twin of ``frontend/src/viewer/graphs/data.ts``."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any


class Received:
    """The graphs of a page."""

    def __init__(self, *parts: Mapping[str, Any]) -> None:
        self.tables: dict[str, list[Any]] = defaultdict(list)
        self.layouts: dict[str, str] = {}
        self.others: dict[str, Any] = {}
        for part in parts:
            self.add(part)

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part."""
        for name, values in part.items():
            if isinstance(values, list):
                self.tables[name] += values
            elif name == "layouts":
                self.layouts |= values
            else:
                self.others[name] = values
        for _, place, tree in part["filled"]:
            self.tables["trees"][place] = self.tables["trees"][tree]

    def leaves(self, graph: int) -> list[tuple[list[str], dict[str, Any]]]:
        """Return the names of the nodes of each leaf that has arrived, and how it looks."""
        return [
            ([self.text(row, 0) for row in self.tables["leaves"][leaf][1:]], self.look(look))
            for leaf, look in self._children(self.tables["graphs"][graph]["tree"])
        ]

    def names(self, graph: int) -> list[str]:
        """Return the names of the nodes that have arrived, in the order of the graph if all have."""
        names = [name for names, _ in self.leaves(graph) for name in names]
        order = list(itertools.accumulate(self.tables["graphs"][graph]["order"]))
        if len(names) < len(order):
            return names
        return [name for _, name in sorted(zip(order, names, strict=True))]

    def is_complete(self, graph: int) -> bool:
        """Return whether all nodes of a graph have arrived."""
        return len(self.names(graph)) == len(self.tables["graphs"][graph]["order"])

    def marked(self, graph: int) -> dict[str, list[str]]:
        """Return the nodes whose boxes carry marks, and the marks."""
        signatures = self.tables["graphs"][graph]["signatures"]
        return {
            name: [signatures[mark] for mark in look["marks"]]
            for names, look in self.leaves(graph)
            for name in names
            if look["marks"]
        }

    def inputs(self, graph: int) -> dict[str, list[str]]:
        """Return what each node reads."""
        facts = self.tables["facts"]
        rows = [
            row
            for leaf, _ in self._children(self.tables["graphs"][graph]["tree"])
            for row in self.tables["leaves"][leaf][1:]
        ]
        return {self.text(row, 0): [self.tables["texts"][text] for text in facts[row][8]] for row in rows}

    def edges(self, graph: int) -> set[tuple[str, str]]:
        """Return which leaves are joined, by their first nodes."""
        written, leaves = self.tables["graphs"][graph], self.leaves(graph)
        ends = [itertools.accumulate(written[side]) for side in ("sources", "targets")]
        return {(leaves[a][0][0], leaves[b][0][0]) for a, b in zip(*ends, strict=True)}

    def text(self, row: int, place: int) -> str:
        """Return a text of a row of facts."""
        found: str = self.tables["texts"][self.tables["facts"][row][place]]
        return found

    def look(self, number: int) -> dict[str, Any]:
        """Return a look, which may be written as what is different from another."""
        look: dict[str, Any] = self.tables["looks"][number]
        return self.tables["looks"][look["like"]] | look if "like" in look else look

    def looks_in_order(self, graph: int) -> list[tuple[int, list[str]]]:
        """Return the looks in the order of the tree, each with the nodes of its leaf; a group has two."""
        return list(self._looks(self.tables["graphs"][graph]["tree"]))

    def _looks(self, tree: int) -> Iterator[tuple[int, list[str]]]:
        group = self.tables["trees"][tree]
        yield from ((group["closed"], []), (group["opened"], []))
        for child in group["children"]:
            if isinstance(child, int):
                yield from self._looks(child)
            else:
                leaf, look = child
                yield look, [self.text(row, 0) for row in self.tables["leaves"][leaf][1:]]

    def _children(self, tree: int) -> Iterator[tuple[int, int]]:
        for child in self.tables["trees"][tree]["children"] or ():
            if isinstance(child, int):
                yield from self._children(child)
            else:
                yield child[0], child[1]
