"""Visible boxes with their words, sizes and marks, for pictures and for the data of pages."""

import builtins
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from torch import fx, nn

from fxlab.base.torch_private import OpOverload
from fxlab.base.units import short_count
from fxlab.base.words import counted
from fxlab.drawing.hierarchy.auxiliary_nodes import GUARDS, MASK, ORDER, RESULTS, SIZES
from fxlab.drawing.hierarchy.changes import CHANGES
from fxlab.drawing.hierarchy.folding import NUMBERED
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.hierarchy.placement import BACKWARD, RECOMPUTED
from fxlab.drawing.rendering.theme import shorten, text_width
from fxlab.drawing.view import Chip, View
from fxlab.graphs.unfolded import bare_name
from fxlab.operators.node_info import result_text, short_name, state_path, target_text

MOST_RESULTS = 4
"""Of results that a graph returns by name, the box of the output names so many."""
MOST_RUNS = 2
"""Of equal blocks that the box around them names."""
_BINARY_SYMBOLS = {"add": "+", "sub": "−", "mul": "×", "truediv": "÷", "div": "÷"}  # noqa: RUF001


def title_of(item: Group | Leaf) -> str:
    """Return the name that a box is known by, complete."""
    if isinstance(item, Group):
        if item.kind == "repeat":
            return _times(item.class_name, item.members)
        if item.host:
            return title_of(item.host)
        return f"{item.label} · {item.nodes}" if item.kind == "bookkeeping" else item.label
    if item.owner:
        return short_name(item.owner)
    if item.node.op == "call_module":
        return short_name(str(item.node.target))
    if item.node.op == "placeholder":
        return target_text(item.node)
    return _called(item) if _is_misnamed(item) else bare_name(item.node)


def _is_misnamed(leaf: Leaf) -> bool:
    """Whether the name of a call says nothing of its function, as that of a ``gelu`` that calls ``relu``."""
    if leaf.owner or leaf.bookkeeping or leaf.node.op not in ("call_function", "call_method"):
        return False
    called, name = (words.replace("_", "").lower() for words in (_called(leaf), bare_name(leaf.node)))
    return called not in name


def _called(leaf: Leaf) -> str:
    """Return the last word of what a node calls, without an overload."""
    target = leaf.node.target
    text = str(target.overloadpacket) if isinstance(target, OpOverload) else target_text(leaf.node)
    return text.rpartition(".")[2]


def lines_of(
    item: Group | Leaf, modules: Mapping[str, nn.Module], *, opened: bool = False, of_step: bool = False
) -> tuple[str, ...]:
    """Return the lines under a box's title; a group ``of_step`` names no rows of equal nodes."""
    if isinstance(item, Group):
        if item.kind == "bookkeeping":
            return () if item.host is None else _hosted_lines(item, item.host, modules)
        return _group_lines(item) + (() if opened else _runs_in(item, of_step))
    lines = [
        _operation(item, modules),
        bare_name(item.node) if _is_misnamed(item) else "",
        "" if item.owner else _attributes_text(item.node),
        result_text(item.node),
    ]
    return tuple(line for line in lines if line)


def _hosted_lines(group: Group, host: Leaf, modules: Mapping[str, nn.Module]) -> tuple[str, ...]:
    """Return the lines of an input or output, and of the nodes drawn with it."""
    kinds = Counter(
        leaf.bookkeeping
        for leaf in group.children
        if isinstance(leaf, Leaf) and not (leaf.bookkeeping == GUARDS and leaf.node.users)
    )
    words = [
        f"mask of {counted(kinds[kind], 'node')}"
        if kind == MASK
        else counted(kinds[kind], "size read" if kind == SIZES else kind.removesuffix("s"))
        for kind in ORDER
        if kinds[kind] and kind != RESULTS
    ]
    return (*lines_of(host, modules), *([", ".join(words)] if words else []))


def lines_of_step(item: Group | Leaf, hierarchy: Hierarchy) -> tuple[str, ...]:
    """Return the results of a training step in a box, and the share of a backward pass that is recomputed."""
    if isinstance(item, Leaf):
        name = hierarchy.returned.get(item.start)
        return () if name is None else (f"→ {_short_result(name)}",)
    positions = hierarchy.returned_at
    inside = positions[bisect_left(positions, item.start) : bisect_left(positions, item.stop)]
    returned = [hierarchy.returned[position] for position in inside]
    gradients = sum(name.startswith("grad") for name in returned)
    lines = [counted(gradients, "gradient")] if gradients else []
    lines += [counted(len(returned) - gradients, "new value")] if len(returned) > gradients else []
    if item.path.endswith(BACKWARD):
        again = hierarchy.recomputed_before[item.stop] - hierarchy.recomputed_before[item.start]
        lines += [f"{counted(again, 'node')} recomputed"] if again else []
    return tuple(lines)


def _short_result(name: str) -> str:
    """Return a name such as ``grad of layers.0.weight`` without the module."""
    what, of, path = name.rpartition(" of ")
    return f"{what}{of}{path.rpartition('.')[2]}" if of else name


def says_what_the_title_says(line: str, title: str) -> bool:
    """Whether a line such as ``torch.add`` only repeats a title such as ``add_3``."""
    called = line.removesuffix("()").rpartition(".")[2]
    return called == NUMBERED.sub("", title)


def _attributes_text(node: fx.Node) -> str:
    """Return the parameters that a node reads itself."""
    names = [
        target_text(source).partition(" ")[0].rpartition(".")[2]
        for source in node.all_input_nodes
        if source.op == "get_attr" or state_path(source) is not None
    ]
    return f"with {', '.join(names)}" if names else ""


def _group_lines(group: Group) -> tuple[str, ...]:
    count = counted(group.nodes, "node")
    if group.parameters:
        count += f" · {short_count(group.parameters)} params"
    if group.kind == "repeat":
        return (group.label, count)
    return tuple(line for line in (group.class_name, count) if line)


def _runs_in(group: Group, of_step: bool) -> tuple[str, ...]:
    """Return the repeated blocks in a group, also one that differs from its run, such as the first."""
    groups = [child for child in group.children if isinstance(child, Group)]
    groups = [child for child in groups if not (of_step and _is_row(child))]
    blocks: Counter[str] = Counter()
    for child in groups:
        blocks[child.class_name] += child.members
    is_list = group.kind == "segment"
    runs = dict.fromkeys(child.class_name for child in groups if child.kind == "repeat" or is_list)
    texts = [_times(name, blocks[name]) for name in runs if name or not is_list]
    return (", ".join(texts[:MOST_RUNS]),) if texts and group.kind in ("module", "segment") else ()


def _is_row(group: Group) -> bool:
    """Whether a group is a row of equal nodes, and not of blocks."""
    first: Group | Leaf = group
    while isinstance(first, Group) and first.kind in ("repeat", "segment"):
        first = first.children[0]
    return isinstance(first, Leaf)


def _times(class_name: str, members: int) -> str:
    return f"{class_name or 'block'} × {members}" if members > 1 else class_name  # noqa: RUF001


def _operation(leaf: Leaf, modules: Mapping[str, nn.Module]) -> str:
    node = leaf.node
    if node.op == "call_module":
        module = modules.get(str(node.target))
        return f"call_module {node.target}" if module is None else module_text(module)
    if node.op == "placeholder":
        return "input"
    if node.op == "output":
        return _returned(node.args[0] if node.args else None)
    if node.op == "get_attr":
        return f"get_attr {node.target}"
    text = _call_text(node)
    if not leaf.owner_class:
        return text
    called = _called(leaf).replace("_", "").lower()
    is_own = leaf.owner_class.lower().startswith(called)
    return leaf.owner_class if is_own else f"{_called(leaf)} of {leaf.owner_class}"


def _returned(value: Any) -> str:
    """Return the names of the values that a graph returns, or their number."""
    if isinstance(value, fx.Node) and isinstance(value.target, type):
        value = dict(value.kwargs) or value.args
    if isinstance(value, Mapping):
        names = list(map(str, value))
        few = names[:MOST_RESULTS] if len(names) > MOST_RESULTS + 1 else names
        return ", ".join(few) + (f" and {len(names) - len(few)} more" if few != names else "")
    return counted(len(value), "value") if isinstance(value, tuple | list) and len(value) > 1 else ""


def _call_text(node: fx.Node) -> str:
    if node.op == "call_function" and node.target is builtins.getattr:
        return f".{node.args[1]}" if len(node.args) > 1 else "getattr"
    arithmetic = _arithmetic(node)
    if arithmetic:
        return arithmetic
    plain = [_number(a) for a in node.args[:6] if isinstance(a, bool | int | float)]
    constants = ", ".join(plain[:4])
    if node.op == "call_method":
        return f".{node.target}({constants})"
    if node.target is operator.getitem and constants:
        return f"[{constants}]"
    return f"{target_text(node)} ({constants})" if constants else target_text(node)


def _arithmetic(node: fx.Node) -> str:
    """Return the symbol and the number of arithmetic with a number; empty for anything else."""
    symbol = _BINARY_SYMBOLS.get(getattr(node.target, "__name__", str(node.target)).partition(".")[0])
    if symbol is None or len(node.args) < 2:
        return ""
    left, right = node.args[:2]
    if isinstance(right, int | float):
        return f"{symbol} {_number(right)}"
    return f"{_number(left)} {symbol} …" if isinstance(left, int | float) else ""


def _number(value: bool | int | float) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def module_text(module: nn.Module) -> str:
    """Return a module's class and the arguments that people know it by: ``Conv2d 3→64 k7 s2``."""
    name = type(module).__name__
    for kinds, describe in _MODULE_WORDS:
        if isinstance(module, kinds):
            try:
                return f"{name} {describe(module)}".rstrip()
            except (AttributeError, TypeError, ValueError):  # a subclass that keeps its arguments elsewhere
                return name
    return name


def _same(values: Any) -> str:
    sizes = tuple(values) if isinstance(values, tuple | list) else (values,)
    return str(sizes[0]) if len(set(sizes)) == 1 else "×".join(map(str, sizes))  # noqa: RUF001


def _convolution(module: Any) -> str:
    words = [f"{module.in_channels}→{module.out_channels}", f"k{_same(module.kernel_size)}"]
    if _same(module.stride) != "1":
        words.append(f"s{_same(module.stride)}")
    if module.groups != 1:
        words.append(f"g{module.groups}")
    return " ".join(words)


def _pooling(module: Any) -> str:
    stride = _same(module.stride) if module.stride is not None else "1"
    return f"k{_same(module.kernel_size)} s{stride}"


_MODULE_WORDS: tuple[tuple[tuple[type[nn.Module], ...], Any], ...] = (
    ((nn.Linear,), lambda m: f"{m.in_features}→{m.out_features}"),
    ((nn.modules.conv._ConvNd,), _convolution),
    ((nn.Embedding,), lambda m: f"{m.num_embeddings}×{m.embedding_dim}"),  # noqa: RUF001
    ((nn.LayerNorm, nn.RMSNorm), lambda m: _same(m.normalized_shape)),
    ((nn.GroupNorm,), lambda m: f"{m.num_groups} of {m.num_channels}"),
    ((nn.modules.batchnorm._NormBase,), lambda m: str(m.num_features)),
    ((nn.Dropout,), lambda m: f"p={m.p:g}"),
    ((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool2d), _pooling),
    ((nn.modules.pooling._AdaptiveAvgPoolNd,), lambda m: f"→{_same(m.output_size)}"),
)


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
