"""View -> SVG."""

from __future__ import annotations

from collections.abc import Mapping

from fxlab.drawing.rendering.box import Box, Marks, make_boxes
from fxlab.drawing.rendering.dot import (
    PLAIN,
    Arrangement,
    check_marks,
    signatures_of,
    values_text,
    write_digraph,
)
from fxlab.drawing.rendering.layout import TIMEOUT, lay_out
from fxlab.drawing.rendering.paint import paint
from fxlab.drawing.rendering.picture import EdgeInfo, Picture
from fxlab.drawing.rendering.safe_svg import safe_svg
from fxlab.drawing.view import View, VisibleEdge
from fxlab.overlays.overlay import Overlay

_LONGEST_TOOLTIP = 300


def render(
    view: View,
    *,
    marks: Marks | None = None,
    signatures: tuple[str, ...] | None = None,
    overlay: Overlay | None = None,
    arrangement: Arrangement = PLAIN,
    timeout: float = TIMEOUT,
) -> Picture:
    """Draw a view as SVG.

    Parameters
    ----------
    view
        What is visible.
    marks
        Node name -> signatures of the transformations that changed the node. Such nodes, and the groups that
        hold them, are highlighted.
    signatures
        The signatures in the order that numbers them: a box changed by ``signatures[i]`` has the class
        ``fx-mark-i``. By default, the order of their first appearance in ``marks``.
    overlay
        What to colour boxes by. The picture has a legend then.
    arrangement
        How the boxes are arranged.
    timeout
        Seconds after which the layout is given up.

    Returns
    -------
    Picture
        The SVG, and what each of its elements stands for. The same view and marks give the same SVG.

    Raises
    ------
    fxlab.drawing.LayoutError
        If Graphviz is missing, fails, takes too long or is cancelled.
    """
    if not isinstance(view, View):
        raise TypeError(
            f"render expected a View, got {type(view).__name__}: View.default(build_hierarchy(graph_module))."
        )
    marks = check_marks(marks)
    order = signatures_of(marks) if signatures is None else tuple(signatures)
    boxes = make_boxes(view, marks, order)
    edges = {edge.id: edge for edge in map(_edge_info, view.edges)}
    painting = paint(view, overlay) if overlay is not None else None
    drawn = lay_out(write_digraph(view, boxes, painting, arrangement).source, "svg", timeout=timeout)
    svg, width, height = safe_svg(drawn, _tooltips(boxes, edges))
    infos = {box.info.id: box.info for box in boxes.values()}
    infos |= {chip.info.id: chip.info for box in boxes.values() for row in box.chip_rows for chip in row}
    return Picture(svg, infos, edges, order, width, height)


def _tooltips(boxes: Mapping[str, Box], edges: Mapping[str, EdgeInfo]) -> dict[str, str]:
    """Return what is shortened in the boxes in full, and what flows along the edges."""
    words = {}
    for box in boxes.values():
        words[box.info.id] = ", ".join((box.info.label, *box.info.details))[:_LONGEST_TOOLTIP]
    for edge in edges.values():
        ends = f"{boxes[edge.source].title} → {boxes[edge.target].title}"
        words[edge.id] = f"{ends} · {edge.label}" if edge.label else ends
    return words


def _edge_info(edge: VisibleEdge) -> EdgeInfo:
    return EdgeInfo(
        id=f"edge-{edge.source.id}-{edge.target.id}",
        source=edge.source.id,
        target=edge.target.id,
        nodes=tuple(leaf.name for leaf in edge.leaves),
        label=values_text(edge),
    )
