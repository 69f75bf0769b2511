"""Visible boxes with their words, sizes and marks: what pictures and reports are written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from fxlab.drawing.hierarchy.changes import CHANGES
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.rendering.describe import lines_of, says_what_the_title_says, title_of
from fxlab.drawing.rendering.picture import BoxInfo, BoxKind
from fxlab.drawing.rendering.typography import shorten, text_width
from fxlab.drawing.view import Chip, View

TITLE_SIZE, LINE_SIZE, CHIP_SIZE = 14.0, 10.5, 9.5
TITLE_HEIGHT, LINE_HEIGHT, CHIP_HEIGHT = 18.0, 14.5, 15.0
PADDING_X, PADDING_Y = 13.0, 6.0
CHIP_GAP, CHIP_PADDING = 4.0, 7.0
CHIP_ROWS_GAP = 4.0
BADGE_GAP = 8.0
BADGE_ROOM = 5.0
"""Between the last line of a box and its badge."""
SHEET = 4.0
"""Between the borders of a box that stands for several blocks."""
TOGGLE_ROOM = 18.0
CLUSTER_MARGIN = 30.0
"""Room beside a cluster's title for its sign and its rounded corner."""
LONGEST_TITLE, LONGEST_LINE, LONGEST_CHIP = 32, 40, 22
WIDEST_JOINED = 250.0
"""Two lines under a title are one if that is no wider: pictures are higher than windows are."""
CHIPS_PER_ROW, MOST_CHIPS = 3, 6

Marks = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class ChipBox:
    """A chip above the title of the box that reads its value."""

    info: BoxInfo
    text: str
    width: float


@dataclass(frozen=True, slots=True)
class Box:
    """A box or the title of a cluster, ready to be drawn."""

    info: BoxInfo
    title: str
    lines: tuple[str, ...]
    badge: str
    classes: str
    width: float
    height: float
    chip_rows: tuple[tuple[ChipBox, ...], ...] = ()


def make_boxes(view: View, marks: Marks, signatures: Sequence[str]) -> dict[str, Box]:
    """Return every visible box and cluster of a view by id, in the order of the tree."""
    index = {signature: number for number, signature in enumerate(signatures)}
    boxes = {}
    for item in [*view.clusters, *view.boxes]:
        opened = isinstance(item, Group) and view.is_cluster(item)
        box = make_box(item, view.hierarchy, marks, index, opened=opened)
        boxes[item.id] = _with_chips(box, view.chips.get(item.id, ()))
    return boxes


def make_box(
    item: Group | Leaf, hierarchy: Hierarchy, marks: Marks, index: Mapping[str, int], *, opened: bool = False
) -> Box:
    """Return a box as it is in every view, without chips; a group's ``opened`` box is the title of a cluster.

    ``index`` numbers the signatures.
    """
    # A width is a whole number of points: that is the same in inches whoever rounds it.
    info = _info(item, hierarchy, marks, index, opened)
    title = shorten(info.label, LONGEST_TITLE) or " "
    lines = tuple(shorten(line, LONGEST_LINE) for line in info.details)
    badge = _badge(item, hierarchy, marks, index) if info.changed and isinstance(item, Group) else ""
    if info.kind == "cluster":
        line = " · ".join(lines)
        width = text_width(title, TITLE_SIZE, bold=True) + 8 + text_width(line, LINE_SIZE)
        width += BADGE_GAP + text_width(badge, CHIP_SIZE, bold=True) + 14 if badge else 0
        width += CLUSTER_MARGIN
        width = float(ceil(width))
        return Box(info, title, (line,), badge, _classes(item, info), width, TITLE_HEIGHT + 4)
    if info.kind == "placeholder" or (lines and says_what_the_title_says(lines[0], title)):
        lines = lines[1:]
    lines = _joined(lines)
    widths = [
        text_width(title, TITLE_SIZE, bold=True) + _sign_room(info),
        *(text_width(line, LINE_SIZE) for line in lines),
    ]
    if badge:
        widths.append(text_width(badge, CHIP_SIZE, bold=True) + 16)
    width = float(ceil(max(64.0, max(widths) + 2 * PADDING_X)))
    height = 2 * PADDING_Y + TITLE_HEIGHT + LINE_HEIGHT * len(lines)
    height += CHIP_HEIGHT + BADGE_ROOM if badge else 0
    if is_light(item):
        height -= PADDING_Y
    return Box(info, title, lines, badge, _classes(item, info), width, height)


def with_line(box: Box, words: str) -> Box:
    """Return a box with one more line, if there are words for it."""
    if not words:
        return box
    width = float(ceil(max(box.width, text_width(words, LINE_SIZE) + 2 * PADDING_X)))
    return replace(box, lines=(*box.lines, words), width=width, height=box.height + LINE_HEIGHT)


def _joined(lines: Sequence[str]) -> tuple[str, ...]:
    """Join lines where they have room beside one another."""
    joined: list[str] = []
    for line in lines:
        longer = f"{joined[-1]} · {line}" if joined else ""
        if joined and text_width(longer, LINE_SIZE) <= WIDEST_JOINED:
            joined[-1] = longer
        else:
            joined.append(line)
    return tuple(joined)


def _with_chips(box: Box, chips: Sequence[Chip]) -> Box:
    rows = _chip_rows(chips, box.info.id)
    if not rows:
        return box
    widest = max(sum(chip.width for chip in row) + CHIP_GAP * (len(row) - 1) for row in rows)
    width = max(box.width, ceil(widest + _sign_room(box.info) + 2 * PADDING_X))
    height = box.height + len(rows) * (CHIP_HEIGHT + CHIP_ROWS_GAP) + 1
    return replace(box, width=width, height=height, chip_rows=rows)


def _sign_room(info: BoxInfo) -> float:
    return TOGGLE_ROOM if info.openable else 0.0


def is_light(item: Group | Leaf) -> bool:
    """Whether a box only serves others."""
    if isinstance(item, Group):
        return item.kind == "bookkeeping" and item.host is None
    return item.bookkeeping != ""


def _badge(group: Group, hierarchy: Hierarchy, marks: Marks, index: Mapping[str, int]) -> str:
    """Return how many nodes passes have changed, or differ where the marks are what became of nodes.

    Of equal blocks, how many in each of them, or in how many blocks.
    """
    is_comparison = set(index) == set(CHANGES)

    def words(marked: int) -> str:
        return f"{marked} {('differs' if marked == 1 else 'differ') if is_comparison else 'changed'}"

    size = (group.stop - group.start) // group.members
    counts = [
        sum(bool(marks.get(name)) for leaf in hierarchy.leaves[start : start + size] for name in leaf.names)
        for start in range(group.start, group.stop, size)
    ]
    if len(set(counts)) == 1 < len(counts):
        return f"each {words(counts[0])}"
    blocks = sum(map(bool, counts))
    return words(sum(counts)) + (f" in {blocks} of {len(counts)}" if len(counts) > 1 else "")


def _info(
    item: Group | Leaf, hierarchy: Hierarchy, marks: Marks, index: Mapping[str, int], opened: bool
) -> BoxInfo:
    names = hierarchy.names_in(item)
    changed = [name for name in names if marks.get(name)] if marks else []
    return BoxInfo(
        id=item.id,
        kind=_kind(item, opened),
        label=title_of(item),
        path=item.path,
        nodes=names,
        details=lines_of(item, hierarchy.modules, opened=opened),
        openable=isinstance(item, Group),
        changed=len(changed),
        marks=tuple(sorted({index[s] for name in changed for s in marks[name] if s in index})),
    )


def _kind(item: Group | Leaf, opened: bool) -> BoxKind:
    if isinstance(item, Group):
        if opened:
            return "cluster"
        if item.host:
            return _kind(item.host, opened)
        return "repeat" if item.kind == "repeat" else "group"
    if item.node.op == "placeholder":
        return "placeholder"
    return "output" if item.node.op == "output" else "op"


def _classes(item: Group | Leaf, info: BoxInfo) -> str:
    if isinstance(item, Group):
        words = ["cluster fx-group" if info.kind == "cluster" else f"node fx-{info.kind}"]
        if info.kind == "repeat":
            words.append("fx-group")
        if is_light(item):
            words.append("fx-bookkeeping")
        elif item.kind not in ("module", "bookkeeping"):
            words.append(f"fx-{item.kind}-group")
    else:
        words = ["node", "fx-op" if info.kind == "op" else f"fx-{info.kind}"]
        if item.node.op not in ("placeholder", "output"):
            words.append(f"fx-{item.node.op}")
        if is_light(item):
            words.append("fx-bookkeeping")
    if info.changed:
        words += ["fx-changed", *(f"fx-mark-{number}" for number in info.marks)]
    return " ".join(words)


def _chip_rows(chips: Sequence[Chip], reader: str) -> tuple[tuple[ChipBox, ...], ...]:
    """Arrange chips in rows."""
    texts = [
        (_chip_info(chip, reader), shorten(chip.source.name, LONGEST_CHIP)) for chip in chips[:MOST_CHIPS]
    ]
    if len(chips) > MOST_CHIPS:
        info, _ = texts[-1]
        texts[-1] = (info, f"and {len(chips) - MOST_CHIPS + 1} more")
    made = [ChipBox(info, text, text_width(text, CHIP_SIZE) + 2 * CHIP_PADDING) for info, text in texts]
    return tuple(tuple(made[start : start + CHIPS_PER_ROW]) for start in range(0, len(made), CHIPS_PER_ROW))


def _chip_info(chip: Chip, reader: str) -> BoxInfo:
    return BoxInfo(
        id=f"chip-{chip.source.id[2:]}-{reader}",
        kind="chip",
        label=chip.source.name,
        path=chip.source.path,
        nodes=(chip.source.name,),
        refers_to=chip.box.id,
        belongs_to=reader,
    )
