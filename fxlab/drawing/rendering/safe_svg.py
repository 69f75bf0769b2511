"""Graphviz's SVG as one that is safe in any page: known elements alone, words placed by known metrics."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from itertools import takewhile

from fxlab.drawing.rendering import theme

_SVG = "{http://www.w3.org/2000/svg}"
_KNOWN = {
    f"{_SVG}{tag}": (tag, attributes.split())
    for tag, attributes in {
        "g": "id class transform",
        "path": "d fill stroke stroke-width stroke-dasharray",
        "polygon": "points fill stroke stroke-width",
        "text": "x y text-anchor font-size font-weight fill stroke stroke-width paint-order "
        "textLength lengthAdjust",
        "defs": "",
        "linearGradient": "id gradientUnits x1 y1 x2 y2",
        "stop": "offset style",
    }.items()
}
"""Element -> its tag and attributes. Graphviz's tooltips are not among them, as these are ids."""
_TEXT, _PATH = f"{_SVG}text", f"{_SVG}path"
TITLE_GAP = 8
"""Between the title of a cluster and its line."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SPECIAL = re.compile(r"[&<>\"'\t\n\r]")
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in "&<>\"'\t\n\r"})


def safe_svg(graphviz_svg: bytes, tooltips: Mapping[str, str]) -> str:
    """Return an SVG of Graphviz as one that is safe anywhere; its sizes are in CSS pixels.

    Words are placed again by the metrics of one font, as the reader has other fonts than Graphviz.
    ``tooltips``: id of a box, cluster or edge -> words about it.
    """
    root = ET.fromstring(graphviz_svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    parts = [
        f'<svg xmlns="{_SVG[1:-1]}" class="fx-picture" width="{width:g}" height="{height:g}" '
        f'viewBox="{left:g} {top:g} {width:g} {height:g}" font-family="{theme.FONT}">'
    ]
    for whole in root:
        # Every picture has such an element; two of them may be on one page.
        whole.attrib.pop("id", None)
        _raise_titles(whole)
        _write(parts, whole, tooltips)
    return "".join([*parts, "</svg>"])


def _raise_titles(picture: ET.Element) -> None:
    """Put the words of opened groups above the lines that cross them, on a border of the group's colour."""
    for group in picture.findall(f"{_SVG}g[@class]"):
        shape = group.find(_PATH)
        if shape is None or "cluster" not in group.attrib["class"].split():
            continue
        words = group[[*group].index(shape) + 1 :]
        del group[len(group) - len(words) :]
        for text in takewhile(lambda each: each.tag == _TEXT, words):  # what follows is on a badge
            text.attrib |= {"stroke": shape.attrib["fill"], "stroke-width": "4", "paint-order": "stroke"}
        title = ET.SubElement(picture, f"{_SVG}g", {"class": "cluster-title", "of": group.get("id", "")})
        title.extend(words)


def _write(parts: list[str], element: ET.Element, tooltips: Mapping[str, str]) -> None:
    """Write an element with all in it, if it is known; each value and text is escaped here, nowhere else."""
    if element.tag not in _KNOWN:
        return
    tag, known = _KNOWN[element.tag]
    if element.tag == _TEXT:
        _fit(element)
    found = element.attrib
    parts.append(f"<{tag}" + "".join([f' {n}="{_escaped(found[n])}"' for n in known if n in found]) + ">")
    if element.tag == _TEXT:
        parts.append(_escaped(element.text or ""))
    elif len(element):
        if tooltip := tooltips.get(found.get("id") or found.get("of", "")):
            parts.append(f"<title>{_escaped(theme.printable(tooltip))}</title>")
        _place(element)
        for child in element:
            _write(parts, child, tooltips)
    parts.append(f"</{tag}>")


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


def _place(group: ET.Element) -> None:
    """Put words where they belong: Graphviz put them there by the fonts that it has."""
    own = ""
    words = group.get("class", "").split()
    for before, text, after in zip(group, group[1:], [*group[2:], None], strict=False):
        if text.tag != _TEXT:
            continue
        # Chips and badges are filled first and outlined last.
        if after is not None and before.tag == after.tag == _PATH:
            text.attrib |= {"x": _middle(before), "text-anchor": "middle"}
        elif "node" in words:
            own = own or _middle(next(group.iter(_PATH)))
            text.attrib |= {"x": own, "text-anchor": "middle"}
        elif "cluster-title" in words and before.tag == _TEXT:
            text.text = (text.text or "").strip()
            text.attrib["x"] = f"{float(before.attrib['x']) + _width(before) + TITLE_GAP:g}"


def _middle(shape: ET.Element) -> str:
    """Return where the middle of a shape lies from left to right."""
    xs = [float(x) for x in _NUMBER.findall(shape.attrib["d"])[::2]]
    return f"{(min(xs) + max(xs)) / 2:g}"


def _fit(text: ET.Element) -> None:
    """Fix the width of a text, so that it also fits where the reader's fonts are wider than the metrics."""
    words = text.text or ""
    if words.strip() and theme.has_known_width(words):
        text.attrib |= {"textLength": f"{_width(text):g}", "lengthAdjust": "spacingAndGlyphs"}


def _width(text: ET.Element) -> float:
    bold = "font-weight" in text.attrib
    return theme.text_width(text.text or "", float(text.attrib["font-size"]), bold=bold)
