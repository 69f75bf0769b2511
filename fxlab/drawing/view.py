"""The visible part of a hierarchy, for pictures: opened groups, and the boxes, edges and chips of these."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import numpy as np

from fxlab.base.exchanged import cached_property
from fxlab.drawing.hierarchy.columns import BACK, BELOW, FORWARD, UPDATE
from fxlab.drawing.hierarchy.folding import Integers
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf

FIRST_BUDGET = 40
"""Most boxes of a first picture, unless the top level has more."""
MOST_ROWS, MOST_COLUMNS = 13.0, 8
"""Rows and columns of boxes in a first picture, which should be readable without zooming."""
MOST_BESIDE = 5
"""Boxes side by side in all columns of a training step, whose lines show bytes."""
HEADING_ROWS, CHIP_ROWS = 0.7, 0.3
"""Room that the heading of an opened group takes, and a row of chips, in rows of boxes."""
MOST_TRIES = 5
BUDGET = 150
"""Boxes of a picture in which a person asked to see more."""
CHIP_READERS = 5
"""A value read by this many visible boxes has a line to the first of them, and a chip at the others."""
MOST_IN_A_COLUMN = 200
"""A picture of more boxes is set in columns: Graphviz takes four times as long for twice the boxes, and a
strip of a thousand boxes fits no screen."""
COLUMN, SHORTEST_COLUMN, LONGEST_COLUMN = 50, 25, 75
"""Boxes of one of several columns."""
LONELY_BESIDE = 4
"""Boxes without a line that stand side by side."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A value made far away, named at the box that reads it."""

    source: Leaf
    """The node that makes the value."""
    box: Group | Leaf
    """The visible box in which it is made; for a reference, the one at the other end."""
    end: Literal["value", "source", "target"] = "value"
    """Of a reference, in place of a line to another column: what the other end is of that line."""


@dataclass(frozen=True, slots=True)
class VisibleEdge:
    """All the values that flow between two visible boxes."""

    source: Group | Leaf
    target: Group | Leaf
    leaves: tuple[Leaf, ...]
    """The nodes whose values flow."""


@dataclass(frozen=True)
class View:
    """A hierarchy with some groups opened. Views are values: opening returns another view.

    ``opened``: paths of the groups whose inside is shown once those around them are open, as the root always
    is. Raises ValueError if a path names no group of the hierarchy.
    """

    hierarchy: Hierarchy = field(compare=False)
    opened: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "opened", frozenset(self.opened))
        for path in self.opened:
            _check_group(self.hierarchy, path)

    @classmethod
    def default(cls, hierarchy: Hierarchy) -> View:
        """Open the heaviest groups, but no runs of repeats, while the picture can be read without zooming."""
        view, tries = cls(hierarchy), 0
        closed = dict.fromkeys(view._worth_opening())
        while closed and tries < MOST_TRIES:
            group = max(closed, key=lambda g: (g.parameters, g.nodes))
            del closed[group]
            both = [hierarchy.groups[path] for path in view._with_partner(group.path)]
            if len(view.boxes) + sum(len(one.children) - 1 for one in both) > FIRST_BUDGET:
                continue
            opened = cls(hierarchy, view.opened | {one.path for one in both})
            if len(view.boxes) > 1 and not opened._is_readable():
                tries += 1
                continue
            view = opened
            closed |= dict.fromkeys(view._worth_opening(group))
        return view

    def open(self, path: str) -> View:
        """Show the inside of a group, and of the other pass of its module in a training step.

        Groups around them open too; a chain of lone groups opens as one.
        """
        _check_group(self.hierarchy, path)
        opened = set(self.opened)
        for group in self._with_partner(path):
            opened |= {group, *self.hierarchy.around(group)}
            inside = self.hierarchy.groups[group].children
            while len(inside) == 1 and isinstance(inside[0], Group) and inside[0].kind == "module":
                opened.add(inside[0].path)
                inside = inside[0].children
        return View(self.hierarchy, frozenset(opened))

    def close(self, path: str) -> View:
        """Hide the inside of a group, and of its other pass, and forget which groups in them were open."""
        _check_group(self.hierarchy, path)
        around, closed = self.hierarchy.around, set(self._with_partner(path))
        return View(
            self.hierarchy, frozenset(p for p in self.opened if path and closed.isdisjoint(around(p)))
        )

    def _with_partner(self, path: str) -> list[str]:
        partner = self.hierarchy.opens_with.get(path)
        return [path] if partner is None else [path, partner]

    def reveal(self, node_names: Iterable[str], budget: int = BUDGET) -> View:
        """Open as many of the groups that hold these nodes as the budget allows, in the order of the graph.

        Of equal blocks with nodes at the same places (and equal marks, if these are given), one is opened. An
        input or output whose box holds the nodes that serve it is seen while that box is closed, as are marks
        on bookkeeping. ``budget``: most boxes that the result may show; open groups stay open.
        """
        is_marked = isinstance(node_names, Mapping)
        marks = node_names if isinstance(node_names, Mapping) else dict.fromkeys(node_names, ())
        opened = set(self.opened)
        boxes = len(self.boxes)
        for name in self._unlike(marks):
            for path in self.hierarchy.ancestors(name):
                group = self.hierarchy.groups[path]
                if path in opened or (group.host is not None and name in group.host.names):
                    continue
                if is_marked and group.kind == "bookkeeping":
                    break
                both = [other for other in self._with_partner(path) if other not in opened]
                more = sum(len(self.hierarchy.groups[other].children) - 1 for other in both)
                if boxes + more > budget:
                    break
                opened.update(both)
                boxes += more
        return View(self.hierarchy, frozenset(opened))

    def _unlike(self, marks: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the names in order, without those in closed blocks like one whose names are returned."""
        of_leaf: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
        for name, labels in marks.items():
            of_leaf.setdefault(self.hierarchy.position_of[name], []).append((name, tuple(labels)))
        positions = sorted(of_leaf)

        def inside(group: Group) -> list[int]:
            return positions[bisect_left(positions, group.start) : bisect_left(positions, group.stop)]

        def walk(group: Group) -> Iterator[str]:
            alike: dict[object, list[Group]] = {}
            for item in members(group):
                if isinstance(item, Leaf):
                    yield from (name for name, _ in of_leaf.get(item.start, ()))
                elif found := inside(item):
                    places = tuple((at - item.start, *[labels for _, labels in of_leaf[at]]) for at in found)
                    is_block = item.kind == "module"
                    key = (item.class_name, item.stop - item.start, places) if is_block else item.path
                    alike.setdefault(key, []).append(item)
            for blocks in alike.values():
                for block in [block for block in blocks if block.path in self.opened] or blocks[:1]:
                    yield from walk(block)

        def members(group: Group) -> Iterator[Group | Leaf]:
            """Yield the members of a group; in place of a list of blocks, its blocks."""
            for child in group.children:
                if isinstance(child, Group) and child.kind in ("repeat", "segment"):
                    yield from members(child)
                else:
                    yield child

        return sorted(walk(self.hierarchy.root), key=self.hierarchy.position_of.__getitem__)

    def _worth_opening(self, inside: Group | None = None) -> list[Group]:
        """Return the groups, of all or of one, that tell more of the model when they are open."""
        children = (inside or self.hierarchy.root).children
        if inside is None and self.hierarchy.columns:  # others open with them
            children = tuple(self.hierarchy.column(FORWARD))
        groups = [child for child in children if isinstance(child, Group)]
        is_alone = len(self.boxes) == 1
        return [
            group
            for group in groups
            if (group.kind == "module" or is_alone)
            and not self.hierarchy.only_serves(group)
            and (not self.hierarchy.columns or _holds_modules(group))
        ]

    def _is_readable(self) -> bool:
        """Whether the picture has few enough rows and columns, as lines lead from row to row."""
        rows, columns = [0] * len(self.boxes), [self.column_of(box) for box in self.boxes]
        for source, target in self._steps:
            if columns[source] == columns[target] or columns[target] == BELOW:
                rows[target] = max(rows[target], rows[source] + 1)
        with_chips = {row for row, box in zip(rows, self.boxes, strict=True) if box.id in self.chips}
        # Columns of a step have their headings beside one another.
        headings = max(Counter(map(self.column_of, self.clusters)).values(), default=0)
        height = max(rows) + 1 + CHIP_ROWS * len(with_chips) + HEADING_ROWS * headings
        widest = dict[int, int]()
        for (column, _), boxes in Counter(zip(columns, rows, strict=True)).items():
            widest[column] = max(widest.get(column, 0), boxes)
        room = MOST_BESIDE if self.hierarchy.columns else MOST_COLUMNS
        return sum(widest.values()) - (BELOW in widest) <= room and height <= MOST_ROWS

    def column_of(self, item: Group | Leaf) -> int:
        """Return the column of a step in which a box or cluster stands; that of all boxes of other graphs."""
        if not self.hierarchy.columns:
            return FORWARD
        return self.hierarchy.columns[bisect_right(self._root_starts, item.start) - 1]

    def is_saved(self, edge: VisibleEdge) -> bool:
        """Return whether a line is of values that a step keeps for its backward pass."""
        return self.column_of(edge.source) == FORWARD and self.column_of(edge.target) == BACK

    @cached_property
    def turn(self) -> Group | Leaf | None:
        """Of a step: the box in which the backward pass begins."""
        return next((box for box in self.boxes if self.column_of(box) == BACK), None)

    @cached_property
    def _root_starts(self) -> list[int]:
        return [child.start for child in self.hierarchy.root.children]

    @cached_property
    def level(self) -> list[tuple[Group | Leaf, Group | Leaf]]:
        """Of a step: boxes that stand at the same height, one left of the other.

        Those of the same module in two columns (of an opened group, its middle box); else the first of the
        forward pass, the last of the backward pass, and the optimizer.
        """
        hierarchy, pairs = self.hierarchy, list[tuple[Group | Leaf, Group | Leaf]]()
        for number, partners in ((BACK, hierarchy.partners), (UPDATE, hierarchy.updates)):
            if not (column := [box for box in self.boxes if self.column_of(box) == number]):
                continue
            before = len(pairs)
            self._pair(hierarchy.column(number - 1), partners, pairs)
            if len(pairs) == before:
                left = [box for box in self.boxes if self.column_of(box) == number - 1]
                calls = [box for box in left if isinstance(box, Group) or box.node.op != "placeholder"]
                pairs.append((calls[0], column[-1]) if number == BACK else (left[-1], column[0]))
        return pairs

    @cached_property
    def above(self) -> list[tuple[Group | Leaf, Group | Leaf]]:
        """Of a step: boxes of the backward pass above those that an opened group reads without a line."""
        lines = [
            (edge.source, edge.target)
            for edge in self.edges
            if self.column_of(edge.source) == BACK == self.column_of(edge.target)
        ]
        read: dict[str, dict[str, Group | Leaf]] = {}
        for source, target in lines:
            for path in self._clusters_around(target):
                group = self.hierarchy.groups[path]
                if not group.start <= source.start < group.stop:
                    read.setdefault(path, {})[source.id] = source
        fed = {target.id for _, target in lines}
        found = []
        for box in self.boxes:
            if self.column_of(box) == BACK and box.id not in fed:
                sources = next((read[path] for path in self._clusters_around(box) if path in read), {})
                found += [(box, source) for source in sources.values()]
        return found

    def _clusters_around(self, box: Group | Leaf) -> list[str]:
        """Return the paths of the opened groups around a box, innermost first."""
        path = self.hierarchy.parents[box.path] if isinstance(box, Group) else box.path
        return self.hierarchy.around(path)[::-1]

    def _pair(
        self,
        items: Iterable[Group | Leaf],
        partners: Mapping[str, Group | Leaf],
        pairs: list[tuple[Group | Leaf, Group | Leaf]],
    ) -> None:
        for item in items:
            other, before = partners.get(item.id), len(pairs)
            if isinstance(item, Group) and self.is_cluster(item):
                self._pair(item.children, partners, pairs)
            if len(pairs) == before and other is not None and other.id in self._ids:
                pairs.append((self._middle(item), self._middle(other)))

    @cached_property
    def _ids(self) -> set[str]:
        return {item.id for item, _ in self._visible}

    def _middle(self, item: Group | Leaf) -> Group | Leaf:
        """Return the box in the middle of an opened group, or a box itself."""
        if isinstance(item, Leaf) or not self.is_cluster(item):
            return item
        inside = [box for box in self.boxes if item.start <= box.start < item.stop]
        return inside[len(inside) // 2]

    @cached_property
    def boxes(self) -> tuple[Group | Leaf, ...]:
        """The visible boxes, in the order of the tree."""
        return tuple(item for item, _ in self._visible if not self.is_cluster(item))

    @cached_property
    def clusters(self) -> tuple[Group, ...]:
        """The opened groups that are visible, outer ones first."""
        return tuple(item for item, _ in self._visible if isinstance(item, Group) and self.is_cluster(item))

    @cached_property
    def edges(self) -> tuple[VisibleEdge, ...]:
        """The edges between visible boxes, merged; values shown as chips, and references, are left out."""
        part = self.part_of
        return tuple(edge for edge in self._flow[0] if part[edge.source.id] == part[edge.target.id])

    @cached_property
    def main_path(self) -> frozenset[tuple[str, str]]:
        """The edges, as ids of their ends, of the path through the boxes that hold the most nodes."""
        nodes = [len(self.hierarchy.names_in(box)) for box in self.boxes]
        most, before = nodes.copy(), dict[int, int]()
        for source, target in self._steps:
            if most[source] + nodes[target] > most[target]:
                most[target], before[target] = most[source] + nodes[target], source
        path, place = set(), max(range(len(most)), key=most.__getitem__, default=0)
        while place in before:
            path.add((self.boxes[before[place]].id, self.boxes[place].id))
            place = before[place]
        return frozenset(path)

    @cached_property
    def _steps(self) -> list[tuple[int, int]]:
        """The edges that lead on in the order of the boxes, as places of these, in that order."""
        place = {box.id: i for i, box in enumerate(self.boxes)}
        ends = sorted((place[edge.source.id], place[edge.target.id]) for edge in self.edges)
        return [(source, target) for source, target in ends if source < target]

    @cached_property
    def chips(self) -> dict[str, tuple[Chip, ...]]:
        """Id of a visible box -> the far values that it reads, and references to boxes of other columns."""
        chips, part = {reader: [*read] for reader, read in self._flow[1].items()}, self.part_of
        for edge in self._flow[0]:
            source, target = edge.source, edge.target
            if part[source.id] != part[target.id]:
                chips.setdefault(target.id, []).append(Chip(edge.leaves[0], source, "source"))
                chips.setdefault(source.id, []).append(Chip(edge.leaves[0], target, "target"))
        return {box: tuple(on_it) for box, on_it in chips.items()}

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Places of the boxes with which the columns of a large picture begin; 0 alone for any other.

        Columns are cut where few lines and opened groups go on.
        """
        last, starts = len(self.boxes), [0]
        if last <= MOST_IN_A_COLUMN or self.hierarchy.columns:
            return (0,)
        place = {box.id: i for i, box in enumerate(self.boxes)}
        begins = [box.start for box in self.boxes]
        ends = [(place[edge.source.id], place[edge.target.id]) for edge in self._flow[0]]
        ends += [
            (bisect_left(begins, group.start), bisect_left(begins, group.stop) - 1) for group in self.clusters
        ]
        changes = [0] * (last + 1)
        for one, other in ends:
            changes[min(one, other) + 1] += 1
            changes[max(one, other) + 1] -= 1
        going_on = [*accumulate(changes)]
        while last - (start := starts[-1]) > LONGEST_COLUMN:
            window = range(start + SHORTEST_COLUMN, start + LONGEST_COLUMN + 1)
            starts.append(min(window, key=lambda at: (going_on[at], abs(at - start - COLUMN), at)))
        return tuple(starts)

    @cached_property
    def part_of(self) -> dict[str, int]:
        """Return, by the id of a box, the number of its column."""
        return {box.id: bisect_right(self.parts, place) - 1 for place, box in enumerate(self.boxes)}

    def pieces(self, group: Group) -> dict[int, str]:
        """Return the columns that an opened group is in, each with the id of its piece there."""
        first = bisect_right(self._part_starts, group.start) - 1
        later = range(first + 1, bisect_left(self._part_starts, group.stop))
        return {first: group.id, **{part: f"{group.id}~{part}" for part in later}}

    @cached_property
    def _part_starts(self) -> list[int]:
        return [self.boxes[place].start for place in self.parts] if self.boxes else [0]

    @cached_property
    def lonely(self) -> list[tuple[Group | Leaf, Group | Leaf]]:
        """Boxes that stand below one another, as no line says where: in each group, in rows."""
        joined = {box.id for edge in self.edges for box in (edge.source, edge.target)}
        rows: dict[tuple[str, int], list[Group | Leaf]] = {}
        for item, around in self._visible:
            if not self.is_cluster(item) and item.id not in joined:
                rows.setdefault((around, self.part_of[item.id]), []).append(item)
        return [pair for row in rows.values() for pair in zip(row, row[LONELY_BESIDE:], strict=False)]

    def is_cluster(self, item: Group | Leaf) -> bool:
        """Whether a visible item is an opened group."""
        return isinstance(item, Group) and item.path in self.opened

    @cached_property
    def _visible(self) -> tuple[tuple[Group | Leaf, str], ...]:
        """Boxes and clusters in the order of the tree, each with the path of the cluster around it."""
        return tuple(self._walk(self.hierarchy.root))

    def _walk(self, group: Group) -> Iterator[tuple[Group | Leaf, str]]:
        for child in group.children:
            yield child, group.path
            if isinstance(child, Group) and child.path in self.opened:
                yield from self._walk(child)

    @cached_property
    def _flow(self) -> tuple[tuple[VisibleEdge, ...], dict[str, tuple[Chip, ...]]]:
        hierarchy, boxes = self.hierarchy, self.boxes
        if not boxes or not len(hierarchy.edge_sources):
            return (), {}
        starts = np.array([box.start for box in boxes])
        made_in = np.searchsorted(starts, hierarchy.edge_sources, side="right") - 1
        read_in = np.searchsorted(starts, hierarchy.edge_targets, side="right") - 1
        crossing = made_in != read_in
        # Sizes and checks of a closed box of bookkeeping would be lines to all boxes.
        closed = np.array([isinstance(box, Group) and box.kind == "bookkeeping" for box in boxes])
        asides = hierarchy.asides
        crossing[asides] &= ~(closed[made_in[asides]] | closed[read_in[asides]])
        crossing[hierarchy.told] = False
        reads = distinct_pairs(hierarchy.edge_sources[crossing], read_in[crossing], len(boxes))
        owner = np.searchsorted(starts, reads[:, 0], side="right") - 1
        far = set(np.flatnonzero(np.bincount(reads[:, 0]) >= CHIP_READERS).tolist())
        chips: dict[str, list[Chip]] = {}
        values: dict[tuple[int, int], list[Leaf]] = {}
        joined: set[int] = set()
        for (position, reader), box in zip(reads.tolist(), owner.tolist(), strict=True):
            leaf = hierarchy.leaves[position]
            if position in far and position in joined:
                chips.setdefault(boxes[reader].id, []).append(Chip(leaf, boxes[box]))
            else:
                values.setdefault((box, reader), []).append(leaf)
                joined.add(position)
        edges = tuple(
            VisibleEdge(boxes[source], boxes[target], tuple(leaves))
            for (source, target), leaves in values.items()
        )
        return edges, {reader: tuple(read) for reader, read in chips.items()}


def _holds_modules(group: Group) -> bool:
    return any(isinstance(child, Group) and child.kind != "bookkeeping" for child in group.children)


def distinct_pairs(first: Integers, second: Integers, below: int) -> Integers:
    """Return each pair once, in order; the second of each is ``below`` a number."""
    # One number for each pair, as numpy takes ten times as long to sort rows; `np.unique` imports numpy.ma.
    numbers = np.sort(first * below + second)
    return np.stack(np.divmod(numbers[np.diff(numbers, prepend=-1) > 0], below), axis=1)


def _check_group(hierarchy: Hierarchy, path: str) -> None:
    if not isinstance(path, str):
        raise TypeError(f"A group path is a str, got {type(path).__name__}.")
    if path not in hierarchy.groups:
        known = ", ".join(repr(p) for p in list(hierarchy.groups)[1:6])
        raise ValueError(f"The graph has no group {path!r}. Groups are, for example, {known or '(none)'}.")
