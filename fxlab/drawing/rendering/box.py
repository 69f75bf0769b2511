"""Visible boxes with their words, sizes and marks: the input of pictures and reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from fxlab.drawing.hierarchy.changes import CHANGES
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.hierarchy.placement import RECOMPUTED
from fxlab.drawing.rendering.describe import lines_of, lines_of_step, says_what_the_title_says, title_of
from fxlab.drawing.rendering.typography import shorten, text_width
from fxlab.drawing.view import Chip, View

TITLE_SIZE, LINE_SIZE, CHIP_SIZE = 14.0, 10.5, 9.5
TITLE_HEIGHT, LINE_HEIGHT, CHIP_HEIGHT = 18.0, 14.5, 15.0
PADDING_X, PADDING_Y = 13.0, 6.0
CHIP_GAP, CHIP_PADDING = 4.0, 7.0
CHIP_ROWS_GAP = 4.0
BADGE_GAP = 8.0
HIGHLIGHT = "highlight"
"""The mark of nodes that are highlighted by their names."""
BADGE_ROOM = 5.0
"""Between the last line of a box and its badge."""
SHEET = 4.0
"""Between the borders of a box that stands for several blocks."""
TOGGLE_ROOM = 18.0
CLUSTER_MARGIN = 30.0
"""Room next to a cluster's title for its sign and its rounded corner."""
LONGEST_TITLE, LONGEST_LINE, LONGEST_CHIP = 32, 40, 22
WIDEST_JOINED = 250.0
"""Two lines under a title are one if that is no wider: pictures are higher than windows are."""
CHIPS_PER_ROW, MOST_CHIPS = 3, 6
TO = "→ "
"""Before the name of a box in another column that reads this one."""

Marks = Mapping[str, Sequence[str]]
BoxKind = Literal["op", "group", "repeat", "placeholder", "output", "cluster"]


@dataclass(frozen=True, slots=True)
class Box:
    """A box or the title of a cluster, ready to be drawn. All texts are the model's own, unescaped."""

    id: str
    """That of its element in an SVG; a group has the same one closed and opened."""
    kind: BoxKind
    label: str
    """The complete title: a node's or a group's short name."""
    details: tuple[str, ...]
    """The complete lines below the title: class or target, shape and dtype, counts."""
    openable: bool
    changed: int
    """How many of its nodes carry a mark."""
    marks: tuple[int, ...]
    """The numbers of the marks: number ``i`` is the CSS class ``fx-mark-i``."""
    title: str
    lines: tuple[str, ...]
    badge: str
    classes: str
    width: float
    height: float
    chip_rows: tuple[tuple[str, ...], ...] = ()
    """The words of the chips above the title."""
    reader_rows: tuple[tuple[str, ...], ...] = ()
    """Those below all words, of readers in other columns."""


def make_boxes(view: View, marks: Marks, signatures: Sequence[str]) -> dict[str, Box]:
    """Return every visible box and cluster of a view by id, in the order of the tree."""
    index = {signature: number for number, signature in enumerate(signatures)}
    boxes: dict[str, Box] = {}
    for item in [*view.clusters, *view.boxes]:
        opened = isinstance(item, Group) and view.is_cluster(item)
        box = make_box(item, view.hierarchy, marks, index, opened=opened)
        ids = view.pieces(item).values() if isinstance(item, Group) and opened else (box.id,)
        boxes |= {id: replace(box, id=id) for id in ids}
    bare = dict(boxes)
    for id, chips in view.chips.items():
        for are_below in (False, True):
            words = [
                _words_of(chip, bare[chip.box.id]) for chip in chips if (chip.end == "target") == are_below
            ]
            boxes[id] = _with_chips(boxes[id], words, are_below) if words else boxes[id]
    return boxes


def make_box(
    item: Group | Leaf, hierarchy: Hierarchy, marks: Marks, index: Mapping[str, int], *, opened: bool = False
) -> Box:
    """Return a box without chips; an ``opened`` group is the title of a cluster."""
    # A width is a whole number of points: then every program rounds it to the same inches.
    kind, label, is_group = _kind(item, opened), title_of(item), isinstance(item, Group)
    details = lines_of(item, hierarchy.modules, opened=opened, of_step=bool(hierarchy.columns))
    if hierarchy.columns and not opened:
        details += lines_of_step(item, hierarchy)
    changed = [name for name in hierarchy.names_in(item) if marks.get(name)] if marks else []
    numbers = tuple(sorted({index[s] for name in changed for s in marks[name] if s in index}))
    about = item.id, kind, label, details, is_group, len(changed), numbers
    classes = _classes(item, kind, numbers, is_changed=bool(changed))
    title = shorten(label, LONGEST_TITLE) or " "
    lines = tuple(shorten(line, LONGEST_LINE) for line in details)
    badge = _badge(item, hierarchy, marks, index) if changed and isinstance(item, Group) else ""
    if kind == "cluster":
        line = " · ".join(lines)
        width = text_width(title, TITLE_SIZE, bold=True) + 8 + text_width(line, LINE_SIZE)
        width += BADGE_GAP + text_width(badge, CHIP_SIZE, bold=True) + 14 if badge else 0
        width += CLUSTER_MARGIN
        width = float(ceil(width))
        return Box(*about, title, (line,), badge, classes, width, TITLE_HEIGHT + 4)
    if kind == "placeholder" or (lines and says_what_the_title_says(lines[0], title)):
        lines = lines[1:]
    lines = _joined(lines)
    widths = [
        text_width(title, TITLE_SIZE, bold=True) + (TOGGLE_ROOM if is_group else 0.0),
        *(text_width(line, LINE_SIZE) for line in lines),
    ]
    if badge:
        widths.append(text_width(badge, CHIP_SIZE, bold=True) + 16)
    width = float(ceil(max(64.0, max(widths) + 2 * PADDING_X)))
    height = 2 * PADDING_Y + TITLE_HEIGHT + LINE_HEIGHT * len(lines)
    height += CHIP_HEIGHT + BADGE_ROOM if badge else 0
    if is_light(item):
        height -= PADDING_Y
    return Box(*about, title, lines, badge, classes, width, height)


def with_line(box: Box, words: str) -> Box:
    """Return a box with one more line, if there are words for it."""
    if not words:
        return box
    width = float(ceil(max(box.width, text_width(words, LINE_SIZE) + 2 * PADDING_X)))
    return replace(box, lines=(*box.lines, words), width=width, height=box.height + LINE_HEIGHT)


def _joined(lines: Sequence[str]) -> tuple[str, ...]:
    """Join lines where they have room side by side."""
    joined: list[str] = []
    for line in lines:
        longer = f"{joined[-1]} · {line}" if joined else ""
        if joined and text_width(longer, LINE_SIZE) <= WIDEST_JOINED:
            joined[-1] = longer
        else:
            joined.append(line)
    return tuple(joined)


def _words_of(chip: Chip, box: Box) -> tuple[str, float]:
    """Return the words of a chip and its width: of a reference, the title of the box at the other end."""
    if chip.end == "value":
        text = shorten(chip.source.name, LONGEST_CHIP)
        return text, chip_width(text)
    # A page knows the width of a title in its box.
    is_bold = "fx-bookkeeping" not in box.classes
    width = text_width(box.title, TITLE_SIZE, bold=is_bold) * CHIP_SIZE / TITLE_SIZE
    if chip.end == "source":
        return box.title, width + 2 * CHIP_PADDING
    return TO + box.title, width + text_width(TO, CHIP_SIZE) + 2 * CHIP_PADDING


def _with_chips(box: Box, words: list[tuple[str, float]], are_below: bool) -> Box:
    if len(words) > MOST_CHIPS:
        more = f"and {len(words) - MOST_CHIPS + 1} more"
        words[MOST_CHIPS - 1 :] = [(more, chip_width(more))]
    rows = [words[start : start + CHIPS_PER_ROW] for start in range(0, len(words), CHIPS_PER_ROW)]
    widest = max(sum(width for _, width in row) + CHIP_GAP * (len(row) - 1) for row in rows)
    width = max(box.width, ceil(widest + (TOGGLE_ROOM if box.openable else 0.0) + 2 * PADDING_X))
    height = box.height + len(rows) * (CHIP_HEIGHT + CHIP_ROWS_GAP) + 1
    texts = tuple(tuple(text for text, _ in row) for row in rows)
    where = {"reader_rows" if are_below else "chip_rows": texts}
    return replace(box, width=width, height=height, **where)  # type: ignore[arg-type]


def chip_width(text: str) -> float:
    """Return the width of a chip with these words."""
    return text_width(text, CHIP_SIZE) + 2 * CHIP_PADDING


def is_light(item: Group | Leaf) -> bool:
    """Whether a box only serves others."""
    if isinstance(item, Group):
        return item.kind == "bookkeeping" and item.host is None
    return item.bookkeeping != ""


def _badge(group: Group, hierarchy: Hierarchy, marks: Marks, index: Mapping[str, int]) -> str:
    """Return how many nodes are changed, differ or are highlighted; of equal blocks, in each or how many."""

    def words(marked: int) -> str:
        if set(index) == set(CHANGES):
            return f"{marked} {'differs' if marked == 1 else 'differ'}"
        return f"{marked} {'highlighted' if HIGHLIGHT in index else 'changed'}"

    size = (group.stop - group.start) // group.members
    counts = [
        sum(bool(marks.get(name)) for leaf in hierarchy.leaves[start : start + size] for name in leaf.names)
        for start in range(group.start, group.stop, size)
    ]
    if len(set(counts)) == 1 < len(counts):
        return f"each {words(counts[0])}"
    blocks = sum(map(bool, counts))
    return words(sum(counts)) + (f" in {blocks} of {len(counts)}" if len(counts) > 1 else "")


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


def _classes(item: Group | Leaf, kind: BoxKind, marks: Sequence[int], *, is_changed: bool) -> str:
    if isinstance(item, Group):
        words = ["cluster fx-group" if kind == "cluster" else f"node fx-{kind}"]
        if kind == "repeat":
            words.append("fx-group")
        if is_light(item):
            words.append("fx-bookkeeping")
        elif item.kind not in ("module", "bookkeeping"):
            words.append(f"fx-{item.kind}-group")
    else:
        words = ["node", f"fx-{kind}"]
        if item.node.op not in ("placeholder", "output"):
            words.append(f"fx-{item.node.op}")
        if is_light(item):
            words.append("fx-bookkeeping")
    place = (item.path, item.label) if isinstance(item, Group) else (item.path, item.owner)
    if any(RECOMPUTED in part for part in place):
        words.append("fx-recomputed")
    if is_changed:
        words += ["fx-changed", *(f"fx-mark-{number}" for number in marks)]
    return " ".join(words)
