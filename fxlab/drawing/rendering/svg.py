"""From Graphviz's SVG, which is read for its geometry only, to the picture's own SVG.

Text comes from the boxes, never from what Graphviz made of its labels, so that it is escaped once, by
:class:`_Writer`, and cannot depend on the fonts that Graphviz found.

Style sheets find: on groups, ``node`` or ``cluster`` with what the box is (``fx-op``, ``fx-call_module``,
``fx-group``, ``fx-repeat``, ``fx-placeholder``, ``fx-output``, ``fx-chip``, ``fx-plumbing``) and its marks
(``fx-changed``, ``fx-mark-0``); ``edge`` and ``fx-several``; inside them ``fx-shape``, ``fx-sheet``,
``fx-title``, ``fx-line``, ``fx-toggle``, ``fx-badge`` and ``fx-badge-text``. Colours are presentational
attributes, which any rule overrides.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fxlab.drawing.rendering.box import (
    CHIP_HEIGHT,
    CHIP_SIZE,
    LINE_HEIGHT,
    LINE_SIZE,
    PADDING_Y,
    TITLE_HEIGHT,
    TITLE_SIZE,
    Box,
    ChipBox,
)
from fxlab.drawing.rendering.paint import Legend, Painting
from fxlab.drawing.rendering.palette import (
    CHANGED,
    CHIP,
    CHIP_INK,
    CLUSTER,
    EDGE,
    HEAT_LINE,
    INK,
    SOFT_INK,
    Colours,
    box_colours,
    heat_colours,
    painted_colours,
)
from fxlab.drawing.rendering.picture import EdgeInfo
from fxlab.drawing.rendering.typography import FONT, has_known_width, printable, text_width

_SVG = "{http://www.w3.org/2000/svg}"
_SPECIAL = re.compile(r"[&<>\"'\t\n\r]")
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in "\"'\t\n\r"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_TRANSLATE = re.compile(r"translate\((-?[\d.]+)[ ,]+(-?[\d.]+)\)")
GROUP_INK, CHANGED_CLUSTER, SHEET = "#7a63b8", "#eebd9f", 4.0
LEGEND_WIDTH, LEGEND_MARGIN, LEGEND_ROW = 240.0, 14.0, 19.0
SCALE_STEPS, SCALE_HEIGHT = 30, 12.0
SWATCH_WIDTH = 18.0


@dataclass(frozen=True, slots=True)
class Rectangle:
    """An area of the picture in its own units."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Where its centre lies from left to right."""
        return self.left + self.width / 2


@dataclass(frozen=True, slots=True)
class _Layout:
    width: float
    height: float
    origin: tuple[float, float]
    areas: dict[str, Rectangle]
    """Boxes and clusters by id, in Graphviz's order: outer clusters first."""
    clusters: frozenset[str]
    edges: dict[str, tuple[str, str]]
    """Edge id -> the line's path and the arrowhead's points."""


def write_svg(
    graphviz_svg: bytes,
    boxes: Mapping[str, Box],
    edges: Mapping[str, EdgeInfo],
    painting: Painting | None = None,
) -> tuple[str, float, float]:
    """Draw boxes and edges where Graphviz put them; return the SVG and its width and height."""
    layout = _read(graphviz_svg)
    painted = {} if painting is None else painting.colours
    x, y = layout.origin
    out = _Writer()
    out.open("g", {"class": "graph", "transform": f"translate({_n(x)} {_n(y)})"})
    depths: list[Rectangle] = []
    for box_id, area in layout.areas.items():
        if box_id in layout.clusters and box_id in boxes:
            while depths and not _holds(depths[-1], area):
                depths.pop()
            _draw_cluster(out, boxes[box_id], area, len(depths))
            depths.append(area)
    for edge_id, (line, arrow) in layout.edges.items():
        if edge_id in edges:
            _draw_edge(out, edges[edge_id], boxes, line, arrow)
    for box_id, area in layout.areas.items():
        if box_id not in layout.clusters and box_id in boxes:
            _draw_box(out, boxes[box_id], area, painted.get(box_id))
    out.close("g")
    page = Rectangle(0.0, 0.0, layout.width, layout.height)
    if painting is not None:
        page = _draw_legend(out, painting.legend, page)
    whole = _Writer()
    whole.open(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "fx-picture",
            "width": _n(page.width),
            "height": _n(page.height),
            "viewBox": f"{_n(page.left)} {_n(page.top)} {_n(page.width)} {_n(page.height)}",
            "font-family": FONT,
        },
    )
    return f"{whole}{out}</svg>", page.width, page.height


class _Writer:
    """Writes elements; each value and text is escaped here and nowhere else.

    The standard library's writer makes a tree first, which takes longer than all else that is done here.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    def open(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element that holds others."""
        self._parts.append(f"{_tag(tag, attributes)}>")

    def close(self, tag: str) -> None:
        """End it."""
        self._parts.append(f"</{tag}>")

    def write(self, tag: str, attributes: Mapping[str, str], text: str = "") -> None:
        """Write an element that holds a text, or nothing."""
        self._parts.append(
            f"{_tag(tag, attributes)}>{_escaped(text)}</{tag}>" if text else f"{_tag(tag, attributes)} />"
        )

    def __str__(self) -> str:
        return "".join(self._parts)


def _tag(tag: str, attributes: Mapping[str, str]) -> str:
    return f"<{tag}" + "".join([f' {name}="{_escaped(value)}"' for name, value in attributes.items()])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


def _read(graphviz_svg: bytes) -> _Layout:
    root = ET.fromstring(graphviz_svg)
    _, _, width, height = (float(v) for v in root.attrib["viewBox"].split())
    drawn = root.find(f"{_SVG}g")
    assert drawn is not None
    moved = _TRANSLATE.search(drawn.attrib.get("transform", ""))
    origin = (float(moved[1]), float(moved[2])) if moved else (0.0, 0.0)
    areas: dict[str, Rectangle] = {}
    clusters: set[str] = set()
    edges: dict[str, tuple[str, str]] = {}
    for group in drawn.iter(f"{_SVG}g"):
        words = group.attrib.get("class", "").split()
        if "edge" in words:
            line, arrow = group.find(f".//{_SVG}path"), group.find(f".//{_SVG}polygon")
            if line is not None:
                edges[group.attrib["id"]] = (
                    line.attrib["d"],
                    "" if arrow is None else arrow.attrib["points"],
                )
        elif "node" in words or "cluster" in words:
            areas[group.attrib["id"]] = _area(group)
            if "cluster" in words:
                clusters.add(group.attrib["id"])
    return _Layout(width, height, origin, areas, frozenset(clusters), edges)


def _area(group: ET.Element) -> Rectangle:
    numbers = [float(n) for shape in _shapes(group) for n in _NUMBER.findall(shape)]
    xs, ys = numbers[::2], numbers[1::2]
    return Rectangle(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys))


def _shapes(group: ET.Element) -> Iterator[str]:
    for element in group.iter():
        if element.tag == f"{_SVG}path":
            yield element.attrib["d"]
        elif element.tag == f"{_SVG}polygon":
            yield element.attrib["points"]


def _holds(outer: Rectangle, inner: Rectangle) -> bool:
    return (
        outer.left <= inner.left
        and outer.top <= inner.top
        and outer.left + outer.width >= inner.left + inner.width
        and outer.top + outer.height >= inner.top + inner.height
    )


def _draw_cluster(out: _Writer, box: Box, area: Rectangle, depth: int) -> None:
    out.open("g", {"id": box.info.id, "class": f"{box.classes} fx-depth-{depth % 2}"})
    colours = CLUSTER[depth % 2]
    if box.info.changed:
        colours = Colours(colours.fill, CHANGED_CLUSTER)
    _rectangle(out, area, colours, radius=9)
    x, y = area.left + 14, area.top + 19
    _toggle(out, x, y - 4, opened=True)
    x += 11
    _text(out, "fx-title", box.title, x, y, TITLE_SIZE, INK, bold=True, anchor="start")
    x += text_width(box.title, TITLE_SIZE, bold=True) + 8
    for line in box.lines:
        _text(out, "fx-line", line, x, y, LINE_SIZE, SOFT_INK, anchor="start")
        x += text_width(line, LINE_SIZE) + 8
    if box.badge:
        _badge(out, box.badge, x + text_width(box.badge, CHIP_SIZE, bold=True) / 2 + 7, y - 11)
    out.close("g")


def _draw_edge(out: _Writer, edge: EdgeInfo, boxes: Mapping[str, Box], line: str, arrow: str) -> None:
    several = " fx-several" if len(edge.nodes) > 1 else ""
    ends = {"data-source": edge.source, "data-target": edge.target}
    out.open("g", {"id": edge.id, "class": f"edge{several}", **ends})
    title = f"{boxes[edge.source].title} → {boxes[edge.target].title}"
    out.write("title", {}, printable(f"{title} · {edge.label}" if edge.label else title))
    stroke = {"stroke": EDGE, "stroke-width": "1.8" if several else "1.1"}
    out.write("path", {"d": line, "fill": "none", **stroke})
    if arrow:
        out.write("polygon", {"points": arrow, "fill": EDGE, "stroke": "none"})
    out.close("g")


def _draw_box(out: _Writer, box: Box, area: Rectangle, paint: Colours | None) -> None:
    label = printable(", ".join((box.info.label, *box.info.details))[:300])
    out.open("g", {"id": box.info.id, "class": box.classes, "aria-label": label})
    colours = box_colours(box.classes) if paint is None else painted_colours(box.classes, paint)
    soft_ink = SOFT_INK if paint is None else INK
    kind = box.info.kind
    radius = area.height / 2 if kind in ("placeholder", "output") else 7.0
    if kind == "repeat":
        for offset in (2 * SHEET, SHEET):
            sheet = Rectangle(area.left + offset, area.top + offset, area.width, area.height)
            _rectangle(out, sheet, colours, radius, name="fx-sheet")
    _rectangle(out, area, colours, radius, heavy=bool(box.info.changed))
    if box.info.openable:
        _toggle(out, area.left + area.width - 11, area.top + 11, opened=False)
    slim = "fx-plumbing" in box.classes
    y = area.top + PADDING_Y * (0.5 if slim else 1) + box.text_top + TITLE_HEIGHT - 4.5
    _text(out, "fx-title", box.title, area.middle, y, TITLE_SIZE, soft_ink if slim else INK, bold=not slim)
    for line in box.lines:
        y += LINE_HEIGHT
        _text(out, "fx-line", line, area.middle, y, LINE_SIZE, soft_ink)
    if box.badge:
        _badge(out, box.badge, area.middle, y + 7)
    out.close("g")
    for chip in box.chips:
        _draw_chip(out, chip, area)


def _draw_chip(out: _Writer, chip: ChipBox, reader: Rectangle) -> None:
    area = Rectangle(reader.left + chip.x, reader.top + chip.y, chip.width, CHIP_HEIGHT)
    out.open("g", {"id": chip.info.id, "class": "node fx-chip", "data-source": chip.info.refers_to})
    out.write("title", {}, printable(f"{chip.info.label[:300]}, made elsewhere"))
    _rectangle(out, area, CHIP, CHIP_HEIGHT / 2)
    _text(out, "fx-title", chip.text, area.middle, area.top + CHIP_HEIGHT - 4.3, CHIP_SIZE, CHIP_INK)
    out.close("g")


def _draw_legend(out: _Writer, legend: Legend, page: Rectangle) -> Rectangle:
    """Draw what the colours mean below the picture; return the area of both."""
    out.open("g", {"id": "fx-legend", "class": "fx-legend"})
    whole = max(page.width, LEGEND_WIDTH)
    left = (page.width - whole) / 2
    x, y = left + LEGEND_MARGIN, page.height + LEGEND_ROW
    _text(out, "fx-title", legend.title, x, y, TITLE_SIZE, INK, bold=True, anchor="start", fitted=False)
    if legend.ends is not None:
        length = LEGEND_WIDTH - 2 * LEGEND_MARGIN
        step = length / SCALE_STEPS
        for i in range(SCALE_STEPS):
            colour = heat_colours(i / (SCALE_STEPS - 1)).fill
            # A little wider than a step, so that nothing shows between two of them.
            _rectangle(
                out, Rectangle(x + i * step, y + 8, step + 0.5, SCALE_HEIGHT), Colours(colour, "none"), 0
            )
        _rectangle(out, Rectangle(x, y + 8, length + 0.5, SCALE_HEIGHT), Colours("none", HEAT_LINE), 0)
        y += 8 + SCALE_HEIGHT + LEGEND_ROW - 4
        low, high = legend.ends
        _text(out, "fx-line", low, x, y, LINE_SIZE, INK, anchor="start", fitted=False)
        _text(out, "fx-line", high, x + length, y, LINE_SIZE, INK, anchor="end", fitted=False)
    for colours, words in legend.kinds:
        _rectangle(out, Rectangle(x, y + 8, SWATCH_WIDTH, SCALE_HEIGHT), colours, 3)
        y += LEGEND_ROW
        _text(
            out, "fx-line", words, x + SWATCH_WIDTH + 8, y - 1, LINE_SIZE, INK, anchor="start", fitted=False
        )
    out.close("g")
    return Rectangle(left, 0.0, whole, y + LEGEND_MARGIN)


def _badge(out: _Writer, text: str, middle: float, top: float) -> None:
    width = text_width(text, CHIP_SIZE, bold=True) + 14
    pill = Rectangle(middle - width / 2, top, width, CHIP_HEIGHT)
    out.open("g", {"class": "fx-badge"})
    _rectangle(out, pill, Colours(CHANGED, "none"), CHIP_HEIGHT / 2)
    _text(out, "fx-badge-text", text, middle, top + CHIP_HEIGHT - 4.3, CHIP_SIZE, "#ffffff", bold=True)
    out.close("g")


def _rectangle(
    out: _Writer,
    area: Rectangle,
    colours: Colours,
    radius: float,
    *,
    heavy: bool = False,
    name: str = "fx-shape",
) -> None:
    out.write(
        "rect",
        {
            "class": name,
            "x": _n(area.left),
            "y": _n(area.top),
            "width": _n(area.width),
            "height": _n(area.height),
            "rx": _n(min(radius, area.height / 2)),
            "fill": colours.fill,
            "stroke": colours.border,
            "stroke-width": "2.2" if heavy else "1",
            **({"stroke-dasharray": "3 3"} if colours.dashed else {}),
        },
    )


def _toggle(out: _Writer, x: float, y: float, *, opened: bool) -> None:
    """Draw a small minus or plus sign around a point."""
    d = f"M{_n(x - 3.5)} {_n(y)}h7" + ("" if opened else f"M{_n(x)} {_n(y - 3.5)}v7")
    out.write(
        "path",
        {"class": "fx-toggle", "d": d, "fill": "none", "stroke": GROUP_INK, "stroke-width": "1.4"},
    )


def _text(
    out: _Writer, name: str, text: str, x: float, y: float, size: float, colour: str, *,
    bold: bool = False, anchor: str = "middle", fitted: bool = True,
) -> None:  # fmt: skip
    attributes = {
        "class": name,
        "x": _n(x),
        "y": _n(y),
        "font-size": _n(size),
        "fill": colour,
        "text-anchor": anchor,
    }
    if bold:
        attributes["font-weight"] = "bold"
    if fitted and text.strip() and has_known_width(text):
        # Where the reader's fonts are wider than these metrics, the text still fits its box.
        attributes |= {
            "textLength": _n(text_width(text, size, bold=bold)),
            "lengthAdjust": "spacingAndGlyphs",
        }
    out.write("text", attributes, text)


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
