"""Graphs as data from which a page draws every view of them, without a kernel.

The page opens groups, lays out and searches by itself (``frontend/src/local``). Whatever depends on the
words and fonts of a box, and on what is known of a node, is worked out here, once; what several nodes or
stages have in common is written once. The data grow with the number of nodes, not with that of views.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from fxlab.drawing import LayoutError, View, build_hierarchy, view
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.rendering import box, palette
from fxlab.drawing.rendering.dot import outline
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.typography import FONT, has_known_width, shorten, text_width
from fxlab.node_info import class_names, frames_of, result_text
from fxlab.validation.cost.traced_flops import TracedFlops
from fxlab.view_model.details import group_details, model_details, node_description, source_frame
from fxlab.view_model.graph_view.counterparts import Counterparts
from fxlab.view_model.graph_view.overlay_state import PAINTS, described
from fxlab.view_model.graph_view.scene import REVEAL_BUDGET
from fxlab.view_model.graph_view.stages import Stages
from fxlab.view_model.wire import LONGEST_CLASSES, clip, to_json

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.overlays import Overlay

Word = tuple[str, float | None]
"""A text and its width; ``None`` where the width is a guess, so that nothing may be squeezed into it."""

METRICS = {
    "font": FONT,
    "titleSize": box.TITLE_SIZE, "lineSize": box.LINE_SIZE, "chipSize": box.CHIP_SIZE,
    "titleHeight": box.TITLE_HEIGHT, "lineHeight": box.LINE_HEIGHT, "chipHeight": box.CHIP_HEIGHT,
    "paddingX": box.PADDING_X, "paddingY": box.PADDING_Y, "toggleRoom": box.TOGGLE_ROOM,
    "chipGap": box.CHIP_GAP, "chipPadding": box.CHIP_PADDING, "chipRowsGap": box.CHIP_ROWS_GAP,
    "more": (text_width("and  more", box.CHIP_SIZE), text_width("0", box.CHIP_SIZE)),
    "chipsPerRow": box.CHIPS_PER_ROW, "mostChips": box.MOST_CHIPS, "chipReaders": view.CHIP_READERS,
    "chipClusters": view.CHIP_CLUSTERS, "revealBudget": REVEAL_BUDGET, "sheet": box.SHEET,
    "ink": palette.INK, "softInk": palette.SOFT_INK, "edge": palette.EDGE, "groupInk": palette.GROUP_INK,
    "changed": palette.CHANGED, "changedCluster": palette.CHANGED_CLUSTER,
    "chipInk": palette.CHIP_INK, "chipColours": (palette.CHIP.fill, palette.CHIP.border),
    "clusterColours": [(colours.fill, colours.border) for colours in palette.CLUSTER],
}  # fmt: skip
"""What the page needs to draw as :mod:`fxlab.drawing` does."""


class _Table:
    """Values that occur many times, written once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """Return the place of a value, which is added if it is new."""
        key = json.dumps(value)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(self._written(value))
        return found

    def _written(self, value: Any) -> Any:
        """Return a new value as it is written."""
        return value


class _Looks(_Table):
    """Looks of boxes; the same box with other marks is written as what is different from the first."""

    def __init__(self) -> None:
        super().__init__()
        self._firsts: dict[str, tuple[int, dict[str, Any]]] = {}

    def _written(self, value: dict[str, Any]) -> dict[str, Any]:
        words = json.dumps([value["kind"], value["label"], value["details"]])
        if words not in self._firsts:
            self._firsts[words] = len(self.values), value
            return value
        number, first = self._firsts[words]
        return {"like": number} | {name: part for name, part in value.items() if part != first[name]}


class PortableGraphs:
    """Collects graphs of one model, such as the stages of a session.

    Parameters
    ----------
    explained
        Signature of a pass -> its ``explain`` frame, or words why there is none.
    """

    def __init__(self, explained: Mapping[str, pd.DataFrame | str]) -> None:
        self._index: dict[str, int] = {}
        self._candidates = _candidates_by_node(explained)
        self._flops = TracedFlops({})
        self._looks = _Looks()
        self._nodes, self._groups, self._frames = _Table(), _Table(), _Table()
        self._trees, self._leaves = _Table(), _Table()
        self._frame_numbers: dict[tuple[Any, ...], int] = {}
        self._graphs: list[dict[str, Any]] = []
        self._pairs: list[dict[str, Any]] = []
        self._alone: dict[int, tuple[Hierarchy, int]] = {}
        """Number of a stage -> its hierarchy and the number of its tree."""
        self._first_dot = ""
        """What the page lays out first: the stage alone that was added last."""

    def add(self, stages: Stages, name: str, overlays: Sequence[Overlay] = ()) -> None:
        """Add what a session shows: a stage, alone or compared with another.

        Parameters
        ----------
        stages
            What is shown. Nodes with marks are seen at first, as far as that makes no large picture.
        name
            Of the model.
        overlays
            What the stage can be coloured by; compared with another, it has the same.
        """
        gm, marks = stages.graph, stages.marks
        hierarchy = build_hierarchy(gm)
        self._index = {signature: number for number, signature in enumerate(stages.signatures)}
        self._flops = TracedFlops(hierarchy.modules)
        overview = View.default(hierarchy)
        known = [node for node in marks if node in hierarchy.position_of]
        first = overview.reveal(known, max(REVEAL_BUDGET, len(overview.boxes)))
        # What groups hold of the difference between two stages, the page reads off their looks.
        tree = self._group(hierarchy.root, hierarchy, marks, {} if stages.shows_changes else marks)
        if stages.number_before is None:
            self._alone[stages.number] = hierarchy, tree
            self._first_dot = outline(first, box.make_boxes(first, marks, stages.signatures))
        self._graphs.append(
            {
                "tree": tree,
                "sources": hierarchy.edge_sources.tolist(),
                "targets": hierarchy.edge_targets.tolist(),
                "chips": _chip_words(hierarchy),
                "nodes": [self._node(node, hierarchy) for node in gm.graph.nodes],
                "overview": sorted(overview.opened),
                "opened": sorted(first.opened),
                "details": self._groups.number(
                    _with_names(model_details(stages.stage, hierarchy, name, stages.applied))
                ),
                "stage": stages.number,
                "before": stages.number_before,
                "signatures": stages.signatures,
                "overlays": [self._overlay(overlay, gm) for overlay in overlays if not stages.shows_changes],
            }
        )

    def add_beside(self, stages: Stages) -> None:
        """Add what a stage and the one beside it have that they do not have alone.

        Parameters
        ----------
        stages
            Two stages side by side, each of which has been added alone.
        """
        self._index = {signature: number for number, signature in enumerate(stages.signatures)}
        numbers = stages.number, stages.number_before or 0
        self._pairs.append(
            {
                "stage": stages.number,
                "before": stages.number_before,
                "signatures": stages.signatures,
                "looks": [self._other_looks(number, stages.marks) for number in numbers],
                "counterparts": _renamed(stages.before, stages.stage),
            }
        )

    def data(self) -> dict[str, Any]:
        """Return all graphs as JSON data."""
        return {
            "metrics": METRICS,
            "paints": PAINTS,
            "looks": self._looks.values,
            "nodes": self._nodes.values,
            "groups": self._groups.values,
            "frames": self._frames.values,
            "trees": self._trees.values,
            "leaves": self._leaves.values,
            "graphs": self._graphs,
            "pairs": self._pairs,
            "layouts": self._layouts(),
        }

    def _layouts(self) -> dict[str, str]:
        """Return the DOT of the first picture and its layout, so that the page need not wait for Graphviz."""
        try:
            return {self._first_dot: lay_out(self._first_dot).decode()}
        except LayoutError:
            return {}

    @staticmethod
    def _overlay(overlay: Overlay, gm: fx.GraphModule) -> dict[str, Any]:
        values = [to_json(overlay.values.get(node.name)) for node in gm.graph.nodes]
        return described(overlay) | {"values": values}

    def _group(self, group: Group, hierarchy: Hierarchy, marks: box.Marks, said: box.Marks) -> int:
        """Return the number of a group with all in it; ``said`` are the marks that its details name."""
        closed, opened = self._group_looks(group, hierarchy, marks)
        return self._trees.number(
            {
                "path": group.path,
                "id": group.id,
                "closed": closed,
                "opened": opened,
                "details": self._groups.number(
                    _with_names(group_details(group, hierarchy, None, said, self._flops))
                ),
                "count": group.nodes,
                "children": [
                    self._group(child, hierarchy, marks, said)
                    if isinstance(child, Group)
                    else [
                        self._leaves.number([child.id, *child.names]),
                        self._leaf_look(child, hierarchy, marks),
                    ]
                    for child in group.children
                ],
            }
        )

    def _group_looks(self, group: Group, hierarchy: Hierarchy, marks: box.Marks) -> tuple[int, int]:
        closed = box.make_box(group, hierarchy, marks, self._index)
        opened = box.make_box(group, hierarchy, marks, self._index, opened=True)
        return self._looks.number(_look(closed)), self._looks.number(_look(opened))

    def _leaf_look(self, leaf: Leaf, hierarchy: Hierarchy, marks: box.Marks) -> int:
        look = _look(box.make_box(leaf, hierarchy, marks, self._index))
        look["result"] = result_text(leaf.node)
        return self._looks.number(look)

    def _looks_under(self, group: Group, hierarchy: Hierarchy, marks: box.Marks) -> Iterator[int]:
        """Yield the looks in the order of the tree; a group has two."""
        yield from self._group_looks(group, hierarchy, marks)
        for child in group.children:
            if isinstance(child, Group):
                yield from self._looks_under(child, hierarchy, marks)
            else:
                yield self._leaf_look(child, hierarchy, marks)

    def _other_looks(self, number: int, marks: box.Marks) -> dict[int, int]:
        """Return the looks of a stage that are others under these marks, by their place in the tree."""
        hierarchy, tree = self._alone[number]
        looks = zip(self._looks_in(tree), self._looks_under(hierarchy.root, hierarchy, marks), strict=True)
        return {place: marked for place, (alone, marked) in enumerate(looks) if marked != alone}

    def _looks_in(self, number: int) -> Iterator[int]:
        """Yield the looks that are written in a tree, in its order."""
        tree = self._trees.values[number]
        yield tree["closed"]
        yield tree["opened"]
        for child in tree["children"]:
            if isinstance(child, int):
                yield from self._looks_in(child)
            else:
                yield child[1]

    def _node(self, node: fx.Node, hierarchy: Hierarchy) -> int:
        details = _with_names(
            node_description(node, hierarchy, None, self._candidates.get(node.name, {}), (), self._flops)
        )
        details["frames"] = [self._frame(frame) for frame in frames_of(node)]
        details["inputs"] = [other.name for other in node.all_input_nodes]
        called = hierarchy.modules.get(str(node.target)) if node.op == "call_module" else None
        details["classes"] = clip(class_names(node, called), LONGEST_CLASSES)
        return self._nodes.number(details)

    def _frame(self, frame: dict[str, Any]) -> int:
        key = tuple(frame.values())
        if key not in self._frame_numbers:
            self._frame_numbers[key] = self._frames.number(source_frame(frame))
        return self._frame_numbers[key]


def _look(made: box.Box) -> dict[str, Any]:
    """Describe a box as it looks wherever it is."""
    info = made.info
    colours = palette.box_colours(made.classes)
    return {
        "kind": info.kind,
        "label": info.label,
        "details": info.details,
        "classes": made.classes,
        "title": _word(made.title, box.TITLE_SIZE, bold="fx-plumbing" not in made.classes),
        "lines": [_word(line, box.LINE_SIZE) for line in made.lines],
        "badge": _word(made.badge, box.CHIP_SIZE, bold=True) if made.badge else None,
        "width": round(made.width, 2),
        "height": made.height,
        "colours": (colours.fill, colours.border),
        "openable": info.openable,
        "changed": info.changed,
        "marks": info.marks,
    }


def _renamed(before: fx.GraphModule, after: fx.GraphModule) -> dict[int, list[int]]:
    """Return :attr:`Counterparts.renamed` by the positions of the nodes."""
    old, new = ({node.name: i for i, node in enumerate(gm.graph.nodes)} for gm in (before, after))
    renamed = Counterparts(before, after).renamed
    return {new[name]: [old[other] for other in others] for name, others in renamed.items()}


def _word(text: str, size: float, *, bold: bool = False) -> Word:
    known = bool(text.strip()) and has_known_width(text)
    return text, text_width(text, size, bold=bold) if known else None


def _chip_words(hierarchy: Hierarchy) -> dict[int, tuple[str, float, bool]]:
    """Return, by position, the words of values that are read often enough to become chips somewhere."""
    readers: dict[int, set[int]] = {}
    for source, target in zip(hierarchy.edge_sources.tolist(), hierarchy.edge_targets.tolist(), strict=True):
        readers.setdefault(source, set()).add(target)
    fewest = min(view.CHIP_READERS, view.CHIP_CLUSTERS)
    words = {}
    for position, targets in readers.items():
        if len(targets) >= fewest:
            text = shorten(hierarchy.leaves[position].name, box.LONGEST_CHIP)
            words[position] = (text, text_width(text, box.CHIP_SIZE), has_known_width(text))
    return words


def _candidates_by_node(
    explained: Mapping[str, pd.DataFrame | str],
) -> dict[str, dict[str, pd.DataFrame | str]]:
    """Return, by the name of a node, the rows of each frame that concern it."""
    found: dict[str, dict[str, pd.DataFrame | str]] = {}
    for signature, frame in explained.items():
        if not isinstance(frame, str) and len(frame):
            for name, rows in frame.groupby(level=0, sort=False):
                found.setdefault(str(name), {})[signature] = rows
    return found


def _with_names(details: dict[str, Any]) -> dict[str, Any]:
    """Return details with the names of linked nodes alone; of each the page knows the rest itself."""
    kept = {key: value for key, value in details.items() if key not in ("box", "crumbs")}
    return kept | {side: [link["name"] for link in kept[side]] for side in ("inputs", "users")}
