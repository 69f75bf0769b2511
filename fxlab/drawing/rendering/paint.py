"""An overlay in colours: the fill of each box of a view, and its meaning.

The twin of ``frontend/src/graph/overlays/overlay.ts``, which paints the live picture.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fxlab.base.units import with_unit
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf
from fxlab.drawing.rendering.palette import KINDS, PLAIN, Colours, heat_colours
from fxlab.drawing.rendering.typography import shorten
from fxlab.drawing.view import View
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
    return paint_together([(view, overlay)])[0]


def paint_together(sides: Sequence[tuple[View, Overlay]]) -> list[Painting]:
    """Return how an overlay paints several views, for each of which it has its own values, on one scale."""
    found = ((view, values_of(view, overlay)) for view, overlay in sides)
    known = [{box.id: own[box.id] for box in view.boxes if box.id in own} for view, own in found]
    values = [value for own in known for value in own.values()]
    overlay = sides[0][1]
    title = shorten(overlay.title, LONGEST_WORDS)
    if overlay.kind == "text":
        colours = [dict[str, Colours]() for _ in known]
        legend = Legend(title, None)
    elif overlay.is_numeric:
        level, ends = _scale(overlay, [float(value) for value in values])
        colours = [{box: heat_colours(level(float(value))) for box, value in own.items()} for own in known]
        legend = Legend(title, ends)
    else:
        of_kind = kind_colours(map(str, values))
        colours = [{box: of_kind[str(value)] for box, value in own.items()} for own in known]
        legend = Legend(title, None, kind_words(of_kind))
    return [
        Painting(
            {item.id: own.get(item.id, PLAIN) for item in view.boxes}, legend, _short_labels(view, overlay)
        )
        for (view, overlay), own in zip(sides, colours, strict=True)
    ]


def _short_labels(view: View, overlay: Overlay) -> dict[str, str]:
    labels = labels_of(view.hierarchy, overlay)
    return {item.id: shorten(labels[item.id], LONGEST_WORDS) for item in view.boxes if item.id in labels}


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
