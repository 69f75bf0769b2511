"""Looks of lines: bytes that a step keeps, and on request the dtypes or bytes of all values.

The twin of ``frontend/src/viewer/drawing/lines.ts``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fxlab.base.units import counted, with_unit
from fxlab.drawing.hierarchy.hierarchy import Leaf
from fxlab.drawing.rendering.paint import Legend, kind_colours, kind_words
from fxlab.drawing.rendering.palette import SAVED
from fxlab.drawing.view import View, VisibleEdge
from fxlab.operators.node_info import result_text, value_rows

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
    """The looks of the lines of views, which are compared with one another."""

    def __init__(self, views: Sequence[View], by: str = ALIKE) -> None:
        self._by = by
        edges = [(view, edge) for view in views for edge in view.edges]
        drawn_by_bytes = (edge for view, edge in edges if by == BYTES or view.is_saved(edge))
        self._most = max(map(bytes_of, drawn_by_bytes), default=0)
        dtypes = (dtypes_of(edge) for _, edge in edges if by == DTYPE)
        self._colours = kind_colours(filter(None, dtypes))

    def look(self, view: View, edge: VisibleEdge) -> LineLook:
        """Return the look of a line of a view."""
        is_kept = view.is_saved(edge)
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
            total += prod(map(int, filter(None, sizes.split(",")))) * bits // 8
    return total
