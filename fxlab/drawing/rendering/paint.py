"""Colours of a picture and their meaning, for DOT and pages: an overlay on boxes, dtypes or bytes on lines.

The twin of ``frontend/src/graph/overlays/overlay.ts``, which paints the live picture, and of
``frontend/src/viewer/drawing/lines.ts``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxlab.base.units import with_unit
from fxlab.base.words import counted
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.rendering.theme import KINDS, PLAIN, SAVED, Colours, heat_colours, shorten
from fxlab.drawing.view import View, VisibleEdge
from fxlab.operators.node_info import result_text, value_rows

if TYPE_CHECKING:
    from fxlab.overlays.overlay import Overlay, Value

LONGEST_WORDS = 30
"""Characters of a line of the legend."""
_SMALLEST_LEVEL = 0.12
"""Where orders of magnitude are coloured, the smallest number can still be told from zero."""


@dataclass(frozen=True, slots=True)
class Legend:
    """The meaning of the colours in a painting."""

    title: str
    ends: tuple[str, str] | None
    """Words at both ends of the scale; ``None`` if the values are kinds."""
    kinds: tuple[tuple[Colours, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Painting:
    """The colours of closed boxes by id, and their meaning."""

    colours: Mapping[str, Colours]
    legend: Legend
    labels: Mapping[str, str]
    """Words that are written on boxes, by id."""


def values_of(view: View, overlay: Overlay) -> dict[str, Value]:
    """Return the value of each box and cluster of a view that has one, by id."""
    groups = values_of_groups(view.hierarchy, overlay)
    values = {
        item.id: groups.get(item.path, overlay.of(view.hierarchy.names_in(item)))
        if isinstance(item, Group)
        else overlay.of(item.names, module_alone(item, view.hierarchy))
        for item in [*view.clusters, *view.boxes]
    }
    return {box: value for box, value in values.items() if value is not None}


def values_of_groups(hierarchy: Hierarchy, overlay: Overlay) -> dict[str, Value | None]:
    """Return the values of groups that have one of their own, or hold such groups, by path."""
    own = {
        path: overlay.values[path]
        for path in hierarchy.groups
        if path in overlay.values and path not in hierarchy.position_of
    }
    found: dict[str, Value | None] = {}
    for path, group in reversed(hierarchy.groups.items()) if own else ():  # inner ones first
        inside = (
            overlay.of(child.names, module_alone(child, hierarchy))
            if isinstance(child, Leaf)
            else found[child.path]
            for child in group.children
        )
        found[path] = own.get(path, overlay.combined(v for v in inside if v is not None))
    return found


def module_alone(leaf: Leaf, hierarchy: Hierarchy) -> str:
    """Return the path of the module that consists of a node alone, unless a node has that name."""
    return "" if leaf.owner in hierarchy.position_of else leaf.owner


def paint(view: View, overlay: Overlay) -> Painting:
    """Return how an overlay paints the closed boxes of a view; open groups keep their colours."""
    of_all = values_of(view, overlay)
    values = {box.id: of_all[box.id] for box in view.boxes if box.id in of_all}
    title, colours = shorten(overlay.title, LONGEST_WORDS), dict[str, Colours]()
    legend = Legend(title, None)
    if overlay.is_numeric:
        level, ends = _scale(overlay, [float(value) for value in values.values()])
        colours = {box: heat_colours(level(float(value))) for box, value in values.items()}
        legend = Legend(title, ends)
    elif overlay.kind != "text":
        of_kind = kind_colours(map(str, values.values()))
        colours = {box: of_kind[str(value)] for box, value in values.items()}
        legend = Legend(title, None, kind_words(of_kind))
    shown = {item.id: colours.get(item.id, PLAIN) for item in view.boxes}
    labels = labels_of(view.hierarchy, overlay)
    short = {item.id: shorten(labels[item.id], LONGEST_WORDS) for item in view.boxes if item.id in labels}
    return Painting(shown, legend, short)


def labels_of(hierarchy: Hierarchy, overlay: Overlay) -> dict[str, str]:
    """Return the words that are written on boxes, by id."""
    items: list[Leaf | Group] = [*hierarchy.leaves, *hierarchy.groups.values()] if overlay.labels else []
    found = {
        item.id: overlay.label_of(item.names, module_alone(item, hierarchy))
        if isinstance(item, Leaf)
        else overlay.label_of((), item.path)
        for item in items
    }
    return {box: label for box, label in found.items() if label}


def _scale(overlay: Overlay, values: list[float]) -> tuple[Callable[[float], float], tuple[str, str]]:
    """Return the level of a value, 0 to 1 (of an error, by its magnitude), and words for the ends."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    last = high if high > low else max(values, default=high)
    smallest = min((value for value in finite if value > 0), default=math.inf)

    def words(*ends: float) -> tuple[str, str]:
        start, end = (with_unit(end, overlay.unit) for end in ends)
        return start, end

    if overlay.combine == "sum" and low >= 0:
        return lambda value: value / high if high else float(value > 0), words(0.0, last)
    if low >= 0 and smallest < high:
        span = math.log(high / smallest)

        def magnitude(value: float) -> float:
            if value <= 0:
                return 0.0
            return _SMALLEST_LEVEL + (1 - _SMALLEST_LEVEL) * math.log(value / smallest) / span

        return magnitude, words(low, high)
    return lambda value: (value - low) / (high - low) if high > low else float(value > 0), words(low, last)


def kind_colours(values: Iterable[str]) -> dict[str, Colours]:
    """Return the colours of kinds, the most frequent first."""
    counts = Counter(values)
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    last = len(KINDS) - 1
    return {kind: KINDS[min(number, last)] for number, kind in enumerate(kinds)}


def kind_words(colours: Mapping[str, Colours]) -> tuple[tuple[Colours, str], ...]:
    """Return the meaning of colours of kinds, in few words."""
    words = [shorten(kind, LONGEST_WORDS) for kind in colours][: len(KINDS)]
    if len(colours) > len(KINDS):
        words[-1] = "others"
    return tuple(zip(KINDS, words, strict=False))


ALIKE, DTYPE, BYTES = "alike", "dtype", "bytes"
STYLES = ALIKE, DTYPE, BYTES
"""The things that lines are drawn by."""
FEW_SHAPES = 3
"""A line that more shapes flow along says how many values do."""
THINNEST, THICKEST = 1.2, 5.0
"""Lines by bytes."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class LineLook:
    """The look of one line where it is not that of most."""

    colour: str | None = None
    thickness: float | None = None
    kept: int | None = None
    """The bytes that a step keeps along it for its backward pass."""


class LineStyles:
    """The looks of the lines of a view, which are compared with one another."""

    def __init__(self, view: View, by: str = ALIKE) -> None:
        self._by, self._view = by, view
        drawn_by_bytes = (edge for edge in view.edges if by == BYTES or view.is_saved(edge))
        self._most = max(map(bytes_of, drawn_by_bytes), default=0)
        dtypes = (dtypes_of(edge) for edge in view.edges if by == DTYPE)
        self._colours = kind_colours(filter(None, dtypes))

    def look(self, edge: VisibleEdge) -> LineLook:
        """Return the look of a line."""
        is_kept = self._view.is_saved(edge)
        kind = self._colours.get(dtypes_of(edge)) if self._by == DTYPE else None
        colour = kind.border if kind else SAVED if is_kept else None
        if not is_kept and self._by != BYTES:
            return LineLook(colour)
        flowing = bytes_of(edge)
        share = (flowing / self._most) ** 0.5 if flowing else 0
        return LineLook(colour, THINNEST + (THICKEST - THINNEST) * share, flowing if is_kept else None)

    @property
    def legend(self) -> Legend | None:
        """The meaning of the looks; ``None`` where lines are alike."""
        if self._by == BYTES:
            return Legend(f"Lines: up to {with_unit(self._most, 'B')}", None)
        if self._by == DTYPE:
            return Legend("Lines: dtype", None, kind_words(self._colours))
        return None


def values_text(edge: VisibleEdge) -> str:
    """Return the shapes of the values that flow, or how many values do."""
    shapes = list(dict.fromkeys(text for leaf in edge.leaves if (text := result_text(leaf.node))))
    return ", ".join(shapes) if len(shapes) <= FEW_SHAPES else counted(len(edge.leaves), "value")


def dtypes_of(edge: VisibleEdge) -> str:
    """Return the dtypes of the tensors that flow; empty if none is known."""
    found = {
        dtype for leaf in edge.leaves for _, dtype in value_rows(leaf.node) if dtype.startswith("torch.")
    }
    return ", ".join(dtype.removeprefix("torch.") for dtype in sorted(found))


def bytes_of(edge: VisibleEdge) -> int:
    """Return the bytes of the values of known sizes that flow."""
    return sum(map(_bytes_of, edge.leaves))


def _bytes_of(leaf: Leaf) -> int:
    total = 0
    for shape, dtype in value_rows(leaf.node):
        sizes = shape.strip("()").replace(" ", "")
        bits = 8 if dtype == "torch.bool" else int(next(iter(_NUMBER.findall(dtype)), 0))
        if bits and shape.startswith("(") and not sizes.strip("0123456789,"):
            total += math.prod(map(int, filter(None, sizes.split(",")))) * bits // 8
    return total
