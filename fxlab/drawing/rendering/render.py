"""View -> SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxlab.drawing.rendering.box import Box, Marks, make_boxes
from fxlab.drawing.rendering.dot import PLAIN, Arrangement, signatures_of, write_dot
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.lines import values_text
from fxlab.drawing.rendering.paint import paint
from fxlab.drawing.rendering.safe_svg import safe_svg
from fxlab.drawing.view import View
from fxlab.overlays.overlay import Overlay

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
    ``fx-mark-i``. ``overlay``: what to colour boxes by, with a legend. Raises fxlab.drawing.LayoutError if
    Graphviz is missing, fails, takes too long or is cancelled.
    """
    marks = marks or {}
    boxes = make_boxes(view, marks, signatures_of(marks) if signatures is None else signatures)
    painting = paint(view, overlay) if overlay is not None else None
    drawn = lay_out(write_dot(view, boxes, painting, arrangement))
    return safe_svg(drawn, _tooltips(view, boxes))


def _tooltips(view: View, boxes: Mapping[str, Box]) -> dict[str, str]:
    """Return what is shortened in the boxes in full, and what flows along the edges."""
    words = {box.id: ", ".join((box.label, *box.details))[:_LONGEST_TOOLTIP] for box in boxes.values()}
    for edge in view.edges:
        source, target = edge.source.id, edge.target.id
        shapes = values_text(edge)
        ends = f"{boxes[source].title} → {boxes[target].title}"
        words[f"edge-{source}-{target}"] = f"{ends} · {shapes}" if shapes else ends
    return words
