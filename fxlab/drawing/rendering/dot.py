"""A view in the DOT language: with words for a picture, whose SVG it returns, or as an outline for a page.

An outline has sizes and edges without words or colours, which takes Graphviz half the time. Boxes lie in
the same places with words, since cells have fixed sizes.

Style sheets find: on groups, ``node`` or ``cluster`` with the kind of the box (``fx-op``, ``fx-call_module``,
``fx-group``, ``fx-repeat``, ``fx-placeholder``, ``fx-output``, ``fx-bookkeeping``) and its marks
(``fx-changed``, ``fx-mark-0``), ``cluster-title``, and ``edge``. Any rule overrides the colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fxlab.base.units import with_unit
from fxlab.drawing.hierarchy.columns import BACK, BELOW, HEADINGS
from fxlab.drawing.hierarchy.hierarchy import Group, Leaf
from fxlab.drawing.rendering import theme
from fxlab.drawing.rendering.box import LINE_SIZE, SHEET, Box, Marks, make_boxes, with_line
from fxlab.drawing.rendering.labels import box_label, cluster_label, column_label, legend_label, room_label
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.paint import ALIKE, STYLES, Legend, LineStyles, Painting, paint, values_text
from fxlab.drawing.rendering.safe_svg import safe_svg
from fxlab.drawing.view import View, VisibleEdge

if TYPE_CHECKING:
    from fxlab.overlays.overlay import Overlay

POINTS = 72.0

DOWN, RIGHT = "down", "right"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrangement of boxes."""

    direction: str = DOWN
    shapes: bool = False
    lines: str = ALIKE

    def __post_init__(self) -> None:
        if self.direction not in (DOWN, RIGHT):
            raise ValueError(f'direction: expected "down" or "right", got {self.direction!r}.')
        if self.lines not in STYLES:
            raise ValueError(f'lines: expected "alike", "dtype" or "bytes", got {self.lines!r}.')

    @property
    def layout(self) -> dict[str, str]:
        """The attributes of a graph; within its limits, one of many boxes takes a bounded time."""
        is_down = self.direction == DOWN
        bare, with_words = ("0.27", "0.45") if is_down else ("0.4", "1.1")
        return {
            "rankdir": "TB" if is_down else "LR", "nodesep": "0.28",
            "ranksep": with_words if self.shapes else bare, "splines": "true",
            "nslimit": "2", "nslimit1": "1", "maxiter": "8", "mclimit": "0.6", "pad": "0.08",
        }  # fmt: skip


_BOXES = {"shape": "box", "fixedsize": "true", "margin": "0", "penwidth": "1"}
_LINES = {"arrowsize": "0.55", "penwidth": "1.1"}
_CLUSTERS = {"labelloc": "t", "labeljust": "l", "margin": "14"}
_PARTS = {"color": "transparent", "margin": "0"}
_SEVERAL = {"penwidth": "1.8"}
_MAIN = {"weight": "6"}
"""Of the main path, whose boxes Graphviz puts below one another as far as it can."""
_CHANGED = {"penwidth": "2.2"}
_COLUMNS = {"labelloc": "t", "labeljust": "l", "margin": "14"}
_KEPT = {"arrowhead": "none"}
COLUMNS_GAP = 4
"""Between boxes at the same height in two columns, in gaps between boxes: room for words on lines."""

MOST_IN_A_ROW = 16
"""Columns of a large picture side by side."""

PLAIN = Arrangement()


def to_dot(
    view: View,
    *,
    marks: Marks | None = None,
    overlay: Overlay | None = None,
    arrangement: Arrangement = PLAIN,
) -> str:
    """Write a view in the DOT language: node names are box ids, and sizes of boxes depend on no fonts."""
    marks = marks or {}
    painting = paint(view, overlay) if overlay is not None else None
    return write_dot(view, make_boxes(view, marks, signatures_of(marks)), painting, arrangement)


def signatures_of(marks: Marks) -> tuple[str, ...]:
    """Return the signatures in the order in which they first appear."""
    return tuple(dict.fromkeys(s for signatures in marks.values() for s in sorted(signatures)))


def write_dot(
    view: View, boxes: Mapping[str, Box], painting: Painting | None = None, arrangement: Arrangement = PLAIN
) -> str:
    """Write a view whose boxes are made already."""
    styles = LineStyles(view, arrangement.lines)
    head = _head(arrangement, painting.legend if painting else None, styles.legend)
    words = _Words(boxes, painting, styles, arrangement.shapes)
    return "\n".join([*head, *_lines(view, words), "}"])


def outline(view: View, boxes: Mapping[str, Box]) -> str:
    """Write sizes and lines without words or colours, which Graphviz lays out alike in half the time."""
    return "\n".join([*outline_head(PLAIN), *_lines(view, _Sizes(boxes)), "}"])


def outline_head(arrangement: Arrangement) -> tuple[str, ...]:
    """Return the lines that an outline begins with."""
    looks = {"graph": arrangement.layout, "node": _BOXES, "edge": _LINES}
    written = (f"{kind} [{_listed(attributes)}]" for kind, attributes in looks.items())
    return ("digraph {", *written, 'node [label=""]')


def _listed(attributes: Mapping[str, str]) -> str:
    """Write attributes whose values need no escape: numbers, words and ids."""
    return " ".join([f'{name}="{value}"' for name, value in attributes.items()])


def _head(arrangement: Arrangement, *legends: Legend | None) -> Iterator[str]:
    font = {"fontname": theme.FONT, "fontsize": str(LINE_SIZE), "fontcolor": theme.SOFT_INK}
    yield "digraph fxlab {"
    yield f"graph [{_listed({'bgcolor': 'transparent', **font, **arrangement.layout})}]"
    yield f"node [{_listed({'style': 'rounded,filled', **font, **_BOXES})}]"
    yield f"edge [{_listed({'color': theme.EDGE, **font, **_LINES})}]"
    if shown := [legend for legend in legends if legend is not None]:
        yield f'graph [label={legend_label(shown)} labelloc="b" labeljust="l"]'


def _arranged(view: View) -> Sequence[str]:
    """Return the line that puts columns in a row, or lets those of a step have boxes at the same height."""
    # Packed graphs have no columns of steps, so those are laid out together.
    if view.hierarchy.columns:
        return ['graph [newrank="true"]']
    return [f'graph [pack="40" packmode="array_tu{MOST_IN_A_ROW}"]'] if len(view.parts) > 1 else []


class _Sizes:
    """Writes the looks of boxes and lines in an outline."""

    def __init__(self, boxes: Mapping[str, Box]) -> None:
        self.boxes = boxes

    def closed(self, box: Box) -> str:
        """Return the attributes of a closed box but for its id."""
        return _listed(_size(box))

    def opened(self, box: Box, depth: int) -> str:
        """Return the attributes of a cluster but for its id; ``depth`` clusters are around it."""
        return f"{_listed(_CLUSTERS)} label={room_label(box)}"

    def heading(self, words: str) -> str:
        """Return the attributes of a column of a step but for its id."""
        return f"label={column_label(words, is_room=True)}"

    def line(self, edge: VisibleEdge) -> str:
        """Return the words of a line."""
        return ""


class _Words(_Sizes):
    """Writes the looks of boxes and lines with words and colours."""

    def __init__(
        self, boxes: Mapping[str, Box], painting: Painting | None, styles: LineStyles, has_shapes: bool
    ) -> None:
        self._painted: Mapping[str, theme.Colours] = painting.colours if painting else {}
        labels = painting.labels if painting else {}
        super().__init__({id: with_line(box, labels.get(id, "")) for id, box in boxes.items()})
        self._styles, self._has_shapes = styles, has_shapes

    def closed(self, box: Box) -> str:
        return f"{_listed(_node_attributes(box, self._painted.get(box.id)))} label={box_label(box)}"

    def opened(self, box: Box, depth: int) -> str:
        colours = theme.cluster_colours(box.classes, depth)
        looks = {"fillcolor": colours.fill, "color": colours.border, **_CLUSTERS, "class": box.classes}
        return f'style="rounded,filled" {_listed(looks)} label={cluster_label(box)}'

    def heading(self, words: str) -> str:
        return f'style="rounded" color="{theme.LANE}" label={column_label(words)}'

    def line(self, edge: VisibleEdge) -> str:
        words = theme.printable(values_text(edge)) if self._has_shapes else ""
        look = self._styles.look(edge)
        drawn = {"color": look.colour, "penwidth": look.thickness and f"{look.thickness:.1f}"}
        written = "".join(f' {name}="{value}"' for name, value in drawn.items() if value)
        if look.kept is None:
            return f"{written} label={_quoted(words)}" if self._has_shapes else written
        # Words beside lines move no boxes.
        said = " · ".join(filter(None, (with_unit(look.kept, "B"), words)))
        return f'{written} class="fx-saved" xlabel={_quoted(said)}'


def _quoted(words: str) -> str:
    """Write words as a string of the DOT language."""
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(view: View, looks: _Sizes) -> Iterator[str]:
    """Yield the lines of boxes and edges; boxes of each column are laid out alone, and put in a row."""
    yield from _arranged(view)
    for part in range(len(view.parts)) if len(view.parts) > 1 else ():
        yield f'subgraph "cluster_part-{part}" {{'
        yield f'graph [{_listed(_PARTS)} sortv="{part + 1}"]'
        yield from _boxes(view, looks, part)
        yield "}"
    if len(view.parts) <= 1:
        yield from _boxes(view, looks, 0)
    yield from _edges(view, looks)


def _boxes(view: View, looks: _Sizes, part: int) -> Iterator[str]:
    hierarchy = view.hierarchy
    if not hierarchy.columns:
        yield from _lines_of(hierarchy.root.children, view, looks, 0, part)
        return
    for number, words in enumerate(HEADINGS):
        if column := hierarchy.column(number):
            name = f"column-{number}"
            yield f'subgraph "cluster_{name}" {{'
            yield f'graph [id="{name}" {_listed(_COLUMNS)} {looks.heading(words)}]'
            yield from _lines_of(column, view, looks, 0, part)
            yield "}"
    yield from _lines_of(hierarchy.column(BELOW), view, looks, 0, part)


def _edges(view: View, looks: _Sizes) -> Iterator[str]:
    for left, right in view.level if view.hierarchy.columns else ():
        yield _level(f'"{left.id}"', f'"{right.id}"')
    for upper, lower in view.above if view.hierarchy.columns else view.lonely:
        yield f'"{upper.id}" -> "{lower.id}" [style="invis"]'
    for edge in view.edges:
        source, target = view.column_of(edge.source), view.column_of(edge.target)
        if source == target or target == BELOW:
            # The backward pass leads up: its lines are those of a graph that leads down, turned round.
            attributes = {"dir": "back"} if source == BACK == target else {}
            yield _line_of(view, edge, looks, attributes | _line_attributes(view, edge))
        else:
            is_kept = view.is_saved(edge) and edge.target is not view.turn
            attributes = {"constraint": "false"} | (_KEPT if is_kept else {})
            yield _line_of(view, edge, looks, attributes)


def _level(left: str, right: str) -> str:
    """Put two boxes at the same height, the first to the left."""
    return f'{{rank="same" {left} -> {right} [style="invis" minlen="{COLUMNS_GAP}"]}}'


def _line_of(view: View, edge: VisibleEdge, looks: _Sizes, attributes: Mapping[str, str]) -> str:
    source, target = edge.source.id, edge.target.id
    ends = (target, source) if "dir" in attributes else (source, target)
    written = _listed({"id": f"edge-{source}-{target}", **attributes})
    return f'"{ends[0]}" -> "{ends[1]}" [{written}{looks.line(edge)}]'


def _lines_of(
    children: Iterable[Group | Leaf], view: View, looks: _Sizes, depth: int, part: int = 0
) -> Iterator[str]:
    for child in children:
        if isinstance(child, Leaf) or not view.is_cluster(child):
            if view.part_of[child.id] == part:
                yield f'"{child.id}" [id="{child.id}" {looks.closed(looks.boxes[child.id])}]'
        elif piece := view.pieces(child).get(part):
            yield f'subgraph "cluster_{piece}" {{'
            yield f'graph [id="{piece}" {looks.opened(looks.boxes[piece], depth)}]'
            yield from _lines_of(child.children, view, looks, depth + 1, part)
            yield "}"


def _node_attributes(box: Box, paint: theme.Colours | None) -> dict[str, str]:
    """Return how a closed box looks but for its words."""
    colours = theme.box_colours(box.classes) if paint is None else theme.painted_colours(box.classes, paint)
    size = _size(box)
    own = {"style": "rounded,filled,dashed"} if colours.dashed else {}
    own |= {} if paint is None else {"fontcolor": theme.INK}
    own |= _CHANGED if box.changed else {}
    if box.kind == "repeat":
        # Several blocks: one border in another. Graphviz draws the second around the size that is given.
        own["peripheries"] = "2"
        size = _size(replace(box, width=box.width - 2 * SHEET, height=box.height - 2 * SHEET))
    return {
        "class": box.classes.removeprefix("node "),
        "fillcolor": colours.fill,
        "color": colours.border,
        **size,
        **own,
    }


def _size(box: Box) -> dict[str, str]:
    return {"width": f"{box.width / POINTS:.4f}", "height": f"{box.height / POINTS:.4f}"}


def _line_attributes(view: View, edge: VisibleEdge) -> dict[str, str]:
    is_main = (edge.source.id, edge.target.id) in view.main_path
    return (_SEVERAL if len(edge.leaves) > 1 else {}) | (_MAIN if is_main else {})


_LONGEST_TOOLTIP = 300


def render(
    view: View,
    *,
    marks: Marks | None = None,
    signatures: Sequence[str] | None = None,
    overlay: Overlay | None = None,
    arrangement: Arrangement = PLAIN,
) -> str:
    """Draw a view as SVG. The same view and marks give the same SVG.

    ``marks``: node name -> signatures of the transformations that changed the node, by which boxes are
    highlighted; one changed by ``signatures[i]`` (the marks in order, if left out) has the class
    ``fx-mark-i``. ``overlay``: colours the boxes, with a legend. Raises fxlab.drawing.LayoutError if Graphviz
    is missing, fails, takes too long or is cancelled.
    """
    marks = marks or {}
    boxes = make_boxes(view, marks, signatures_of(marks) if signatures is None else signatures)
    painting = paint(view, overlay) if overlay is not None else None
    drawn = lay_out(write_dot(view, boxes, painting, arrangement))
    return safe_svg(drawn, _tooltips(view, boxes))


def _tooltips(view: View, boxes: Mapping[str, Box]) -> dict[str, str]:
    """Return the full text of shortened lines of the boxes, and the tensors along the edges."""
    words = {box.id: ", ".join((box.label, *box.details))[:_LONGEST_TOOLTIP] for box in boxes.values()}
    for edge in view.edges:
        source, target = edge.source.id, edge.target.id
        shapes = values_text(edge)
        ends = f"{boxes[source].title} → {boxes[target].title}"
        words[f"edge-{source}-{target}"] = f"{ends} · {shapes}" if shapes else ends
    return words
