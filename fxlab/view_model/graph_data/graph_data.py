"""Graphs as data from which a page draws every view of them, without a kernel.

The page opens groups, lays out, searches and filters by itself (``frontend/src/viewer``). Everything that
depends on the words and fonts of a box is worked out here, once; facts that several nodes or stages have in
common are written once. The data grow with the number of nodes, not with that of views.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import fx

from fxlab.base.exchanged import cached_property
from fxlab.base.garbage import making_what_stays, without_collecting
from fxlab.drawing import LayoutError, View, build_hierarchy, view
from fxlab.drawing.hierarchy.columns import HEADINGS
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.rendering import box, theme
from fxlab.drawing.rendering.box import module_text
from fxlab.drawing.rendering.dot import outline
from fxlab.drawing.rendering.labels import COLUMN_POINTS
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.paint import labels_of, module_alone, values_of_groups
from fxlab.drawing.rendering.theme import has_known_width, shorten, text_width
from fxlab.graphs.provenance import Provenance
from fxlab.operators.node_info import parameter_count, result_text
from fxlab.overlays import Overlay
from fxlab.view_model import protocol
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data.facts import Codes, Facts, Looks, Table
from fxlab.view_model.graph_data.metrics import REVEAL_BUDGET
from fxlab.view_model.graph_data.shown_graph import Marks, ShownGraph
from fxlab.view_model.wire import clip, to_json

MOST_LABEL = 40
"""Characters of a label that an overlay writes on a box."""
MOST_AT_ONCE = 1_000
"""Leaves that are written at once; of a larger graph the groups that are closed at first follow."""


class GoneGraphError(ValueError):
    """A graph is asked for whose stage is gone: the question came too late, and needs no answer."""


@dataclass
class _Written:
    """A graph that is written, and the groups that are left out as yet."""

    shown: ShownGraph
    hierarchy: Hierarchy
    tree: int = 0
    missing: list[tuple[int, Group]] = field(default_factory=list)
    """Numbers of the trees that stand for groups that follow."""
    leaves: dict[str, int] = field(default_factory=dict)
    """The numbers of leaves by the names of their nodes."""

    @cached_property
    def overview(self) -> View:
        """The groups that are open at first, without regard to marks."""
        return View.default(self.hierarchy)

    @cached_property
    def nodes(self) -> dict[str, fx.Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.shown.graph.graph.nodes}


class GraphData:
    """Collects the graphs of one model that a page shows, each known by its number."""

    def __init__(self) -> None:
        self._facts, self._looks = Facts(), Looks()
        self.codes = Codes(self._facts.texts)
        self._extras, self._trees = Table[protocol.Extra](), Table[protocol.GroupData]()
        self._leaves, self._graphs = Table[protocol.WrittenLeaf](), Table[protocol.WrittenGraph]()
        self._pairs, self._overlays = Table[protocol.WrittenPair](), Table[protocol.OverlayData]()
        self._filled = Table[tuple[int, int, int]]()
        self._written: dict[int, _Written] = {}
        self._layouts: dict[str, str] = {}
        self._plain: dict[int, dict[str, tuple[int, int]]] = {}
        """Of each graph, the looks of boxes without marks, closed and opened: the same in every pair."""

    def add(self, shown: ShownGraph, model: protocol.ModelDetails) -> int:
        """Add a graph and return its number."""
        with without_collecting():
            hierarchy = build_hierarchy(shown.graph, shown.marks)
            number = len(self._graphs.values)
            written = self._written[number] = _Written(shown, hierarchy)
            first = self.first_view(number)
            writer = _TreeWriter(self, hierarchy, shown, number)
            is_large = len(hierarchy.leaves) > MOST_AT_ONCE
            written.tree = writer.group(hierarchy.root, first.opened if is_large else None)
            written.missing = writer.missing
            places = {node.name: place for place, node in enumerate(shown.graph.graph.nodes)}
            self._graphs.values.append(
                {
                    "tree": written.tree,
                    # Where the names of the leaves, in the order of the tree, stand in the graph.
                    "order": _steps([places[name] for name in hierarchy.names]),
                    "sources": _steps(hierarchy.edge_sources),
                    "targets": _steps(hierarchy.edge_targets),
                    "asides": _steps(hierarchy.asides),
                    "chips": _chip_words(hierarchy),
                    "overview": sorted(written.overview.opened),
                    "opened": sorted(first.opened),
                    "model": model,
                    "signatures": shown.signatures,
                }
            )
            if hierarchy.columns:
                self._graphs.values[number]["columns"] = {
                    "of": hierarchy.columns,
                    "headings": [_word(words, COLUMN_POINTS) for words in HEADINGS],
                    "told": _steps(hierarchy.told),
                }
        return number

    def forget_others(self, kept: Collection[int]) -> int:
        """Release all graphs but these; return the number of those that the page still has."""
        self._written = {number: written for number, written in self._written.items() if number in kept}
        self._plain = {number: plain for number, plain in self._plain.items() if number in kept}
        return len(self._graphs.values) - len(self._written)

    def fill(self, number: int) -> bool:
        """Add some of the groups of a graph that were left out; return whether that were the last."""
        written = self._of(number)
        room = MOST_AT_ONCE
        with making_what_stays():
            writer = _TreeWriter(self, written.hierarchy, written.shown, number)
            while written.missing and room > 0:
                place, group = written.missing.pop(0)
                size = group.stop - group.start
                # Of a group that is too large itself, those in it follow.
                opened = frozenset({group.path}) if size > MOST_AT_ONCE else None
                self._filled.values.append((number, place, writer.group(group, opened)))
                room -= size - sum(inner.stop - inner.start for _, inner in writer.missing)
                written.missing[:0], writer.missing = writer.missing, []
        return not written.missing

    def add_pair(self, after: int, before: int, marks: Marks, signatures: tuple[str, ...]) -> int:
        """Add the data of two graphs side by side, with marks of differences; return its number."""
        for number in (after, before):
            while not self.fill(number):
                pass
        self._pairs.values.append(
            {
                "after": after,
                "before": before,
                "signatures": signatures,
                "looks": (
                    self._other_looks(after, marks, signatures),
                    self._other_looks(before, marks, signatures),
                ),
                "counterparts": _renamed(self.shown(before).graph, self.shown(after).graph),
            }
        )
        return len(self._pairs.values) - 1

    def add_overlay(self, number: int, overlay: Overlay) -> None:
        """Add values by which a graph is coloured."""
        overlay = overlay.on(self.shown(number).graph)
        nodes = self.shown(number).graph.graph.nodes
        hierarchy = self.hierarchy(number)
        owners = {leaf.name: module_alone(leaf, hierarchy) for leaf in hierarchy.leaves}
        written: protocol.OverlayData = {
            "graph": number,
            "name": overlay.name,
            "title": clip(overlay.title, 80),
            "unit": overlay.unit,
            "combine": overlay.combine,
            "numeric": overlay.is_numeric,
            "values": [to_json(overlay.of((node.name,), owners.get(node.name, ""))) for node in nodes],
        }
        if overlay.kind == "text":
            written["isText"] = True
        if groups := values_of_groups(hierarchy, overlay):
            written["groups"] = {path: to_json(value) for path, value in groups.items()}
        if labels := labels_of(hierarchy, overlay):
            written["labels"] = {id: clip(label, MOST_LABEL) for id, label in labels.items()}
        self._overlays.values.append(written)

    def lay_out(self, number: int) -> None:
        """Lay out the first picture of a graph, so that the page need not wait for its own Graphviz."""
        first, shown = self.first_view(number), self.shown(number)
        dot = outline(first, box.make_boxes(first, shown.marks, shown.signatures))
        with contextlib.suppress(LayoutError):
            self._layouts[dot] = lay_out(dot).decode()

    def add_extras(self, number: int, describer: Describer) -> None:
        """Add the details to a graph that a page would otherwise ask for, node by node and group by group."""
        while not self.fill(number):
            pass
        written = self._of(number)
        extra = self._extras.number
        self._graphs.values[number]["extras"] = {
            "nodes": [extra(describer.node(node)) for node in written.shown.graph.graph.nodes],
            "groups": {
                path: extra(describer.group(group)) for path, group in written.hierarchy.groups.items()
            },
        }

    @property
    def numbers(self) -> list[int]:
        """The numbers of all graphs that are kept."""
        return list(self._written)

    def shown(self, number: int) -> ShownGraph:
        """Return a graph by its number; raises ``ValueError`` if it is of a stage that is gone."""
        return self._of(number).shown

    def hierarchy(self, number: int) -> Hierarchy:
        """Return the groups of a graph by its number; raises ``ValueError`` if its stage is gone."""
        return self._of(number).hierarchy

    def first_view(self, number: int) -> View:
        """Return the first view: the overview, and nodes with marks unless they are many."""
        hierarchy, marks = self.hierarchy(number), self.shown(number).marks
        overview = self._of(number).overview
        if not marks:
            return overview
        known = {node: marked for node, marked in marks.items() if node in hierarchy.position_of}
        return overview.reveal(known, max(REVEAL_BUDGET, len(overview.boxes)))

    def take(self) -> protocol.DataPart:
        """Return the data added since the last call."""
        layouts, self._layouts = self._layouts, {}
        return {
            "texts": self._facts.texts.take(),
            "facts": self._facts.rows.take(),
            "frames": self._facts.frames.take(),
            "looks": self._looks.take(),
            "extras": self._extras.take(),
            "trees": self._trees.take(),
            "leaves": self._leaves.take(),
            "graphs": self._graphs.take(),
            "pairs": self._pairs.take(),
            "overlays": self._overlays.take(),
            "codeLines": self.codes.lines.take(),
            "codes": self.codes.codes.take(),
            "codeDifferences": self.codes.differences.take(),
            "filled": self._filled.take(),
            "layouts": layouts,
        }

    def _of(self, number: int) -> _Written:
        if number not in self._written:
            if number not in range(len(self._graphs.values)):
                raise ValueError(f"There is no graph {number}.")
            raise GoneGraphError(f"There is no graph {number}: its stage is gone.")
        return self._written[number]

    def _other_looks(self, number: int, marks: Marks, signatures: tuple[str, ...]) -> dict[int, int]:
        """Return the looks of a graph that differ under these marks, by their place in the tree."""
        written = self._of(number)
        shown = ShownGraph(written.shown.stage, written.shown.graph, marks, signatures)
        writer = _TreeWriter(self, written.hierarchy, shown, number)
        pairs = zip(self._looks_in(written.tree), writer.looks(written.hierarchy.root), strict=True)
        return {place: marked for place, (alone, marked) in enumerate(pairs) if marked != alone}

    def _looks_in(self, number: int) -> Iterator[int]:
        """Yield the looks that are written in a tree, in its order."""
        tree = self._trees.values[number]
        if tree["children"] is None:
            (number,) = (full for _, place, full in self._filled.values if place == number)
            tree = self._trees.values[number]
        yield tree["closed"]
        yield tree["opened"]
        for child in tree["children"] or ():
            if isinstance(child, int):
                yield from self._looks_in(child)
            else:
                yield child[1]


class _TreeWriter:
    """Writes the groups and leaves of a graph."""

    def __init__(self, data: GraphData, hierarchy: Hierarchy, shown: ShownGraph, number: int) -> None:
        self._data, self._hierarchy, self._marks = data, hierarchy, shown.marks
        self._index = {signature: number for number, signature in enumerate(shown.signatures)}
        self._number = number
        self._written = data._of(number)
        self._plain = data._plain.setdefault(number, {})
        # Columns of a step are told by more than what is written of a node.
        plain = [
            n for n, other in data._written.items() if not (hierarchy.columns or other.hierarchy.columns)
        ]
        last = max((n for n in plain if n < number), default=-1)
        self._before, self._plain_before = data._written.get(last), data._plain.get(last, {})
        self.missing: list[tuple[int, Group]] = []

    def group(self, group: Group, opened: frozenset[str] | None = None) -> int:
        """Return the number of a group, with all in it, or without the groups in it that are not opened."""
        closed_look, opened_look = self._group_looks(group)
        written: protocol.GroupData = {
            "path": group.path,
            "id": group.id,
            "kind": group.kind,
            "label": clip(group.label or group.path, 400),
            "className": group.class_name,
            "closed": closed_look,
            "opened": opened_look,
            "count": group.nodes,
            "size": group.stop - group.start,
            "children": None,
        }
        if opened is not None and group.path and group.path not in opened:
            # A group is alike in two graphs only if all in it is.
            written["graph"] = self._number
            number = self._data._trees.number(written)
            self.missing.append((number, group))
            return number
        written["children"] = [
            self.group(child, opened) if isinstance(child, Group) else self._leaf(child)
            for child in group.children
        ]
        return self._data._trees.number(written)

    def looks(self, group: Group) -> Iterator[int]:
        """Yield the looks in the order of the tree; a group has two."""
        yield from self._group_looks(group)
        for child in group.children:
            if isinstance(child, Group):
                yield from self.looks(child)
            else:
                yield self._leaf_look(child)

    def _leaf(self, leaf: Leaf) -> tuple[int, int]:
        """Return the numbers of a leaf and its look, of the graph before if it is as there."""
        name, id, before, leaves = leaf.name, leaf.id, self._before, self._written.leaves
        if before and name in before.leaves and not any(map(self._marks.get, leaf.names)):
            other = before.hierarchy.leaves[before.hierarchy.position_of[name]]
            look = self._plain_before.get(id)
            if look and _written_of(leaf, self._written) == _written_of(other, before):
                leaves[name], self._plain[id] = before.leaves[name], look
                return leaves[name], look[0]
        nodes, modules = self._written.nodes, self._hierarchy.modules
        facts = [self._data._facts.number(nodes[each], modules) for each in leaf.names]
        leaves[name] = self._data._leaves.number((id, *facts))
        return leaves[name], self._leaf_look(leaf)

    def _group_looks(self, group: Group) -> tuple[int, int]:
        """Return the looks of a group, closed and opened."""
        return self._known(group.id, self._hierarchy.names_in(group), lambda: self._new_looks(group))

    def _leaf_look(self, leaf: Leaf) -> int:
        return self._known(leaf.id, leaf.names, lambda: self._new_looks(leaf))[0]

    def _known(self, id: str, names: Iterable[str], make: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Return looks that are made once, unless there are marks."""
        if any(map(self._marks.get, names)):
            return make()
        if id not in self._plain:
            self._plain[id] = make()
        return self._plain[id]

    def _new_looks(self, item: Group | Leaf) -> tuple[int, int]:
        looks = self._data._looks
        closed = _look(box.make_box(item, self._hierarchy, self._marks, self._index))
        if isinstance(item, Leaf):
            closed["result"] = result_text(item.node)
            number = looks.number(closed)
            return number, number
        opened = box.make_box(item, self._hierarchy, self._marks, self._index, opened=True)
        return looks.number(closed), looks.number(_look(opened))


def _written_of(leaf: Leaf, of: _Written) -> list[object]:
    """Return what a leaf's row and look are made of; copies of a graph share the values of ``node.meta``."""
    parts: list[object] = [leaf.path, *leaf[4:]]
    for node in map(of.nodes.__getitem__, leaf.names):
        modules = of.hierarchy.modules
        called = modules.get(str(node.target)) if node.op == "call_module" else None
        module = (type(called), called and module_text(called), parameter_count(node, modules))
        read = [(each.op, each.target, id(each.meta.get("desc"))) for each in node.all_input_nodes]
        meta = {key: id(value) for key, value in node.meta.items()}
        parts += node.op, node.target, repr((node.args, node.kwargs)), read, module, meta
    return parts


def _look(made: box.Box) -> protocol.Look:
    """Describe a box as it looks wherever it is."""
    colours = theme.box_colours(made.classes)
    return {
        "kind": made.kind,
        "label": made.label,
        "details": made.details,
        "classes": made.classes,
        "title": _word(made.title, box.TITLE_SIZE, bold="fx-bookkeeping" not in made.classes),
        "lines": [_word(line, box.LINE_SIZE) for line in made.lines],
        "badge": _word(made.badge, box.CHIP_SIZE, bold=True) if made.badge else None,
        "width": round(made.width, 2),
        "height": made.height,
        "colours": (colours.fill, colours.border),
        "openable": made.openable,
        "changed": made.changed,
        "marks": made.marks,
    }


def _steps(numbers: npt.ArrayLike) -> list[int]:
    """Return each number as its difference from the one before, which is small and often the same."""
    steps: list[int] = np.diff(np.asarray(numbers, dtype=np.int64), prepend=0).tolist()
    return steps


def _renamed(before: fx.GraphModule, after: fx.GraphModule) -> dict[int, list[int]]:
    """Return, by positions, which nodes before each node stands for, if not that of its name."""
    old = {node.name: i for i, node in enumerate(before.graph.nodes)}
    provenance = Provenance(before, after)
    renamed = {}
    for position, node in enumerate(after.graph.nodes):
        others = [old[other.name] for other in provenance.of(node)]
        if others != ([old[node.name]] if node.name in old else []):
            renamed[position] = others
    return renamed


def _word(text: str, size: float, *, bold: bool = False) -> protocol.Word:
    known = bool(text.strip()) and has_known_width(text)
    return text, text_width(text, size, bold=bold), known


def _chip_words(hierarchy: Hierarchy) -> dict[int, tuple[str, float, bool]]:
    """Return, by position, the words of values that are read often enough to become chips somewhere."""
    pairs = view.distinct_pairs(hierarchy.edge_sources, hierarchy.edge_targets, len(hierarchy.leaves))
    words = {}
    for position in np.flatnonzero(np.bincount(pairs[:, 0]) >= view.CHIP_READERS).tolist():
        text = shorten(hierarchy.leaves[position].name, box.LONGEST_CHIP)
        words[position] = (text, text_width(text, box.CHIP_SIZE), has_known_width(text))
    return words
