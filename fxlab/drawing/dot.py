"""A view as a ``graphviz.Digraph``."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import graphviz

from fxlab.drawing.box import LINE_SIZE, TITLE_SIZE, Box, Marks, make_boxes
from fxlab.drawing.hierarchy import Group, Leaf
from fxlab.drawing.paint import Legend, Painting, paint
from fxlab.drawing.palette import CLUSTER, EDGE, HEAT, INK, SOFT_INK, Colours, box_colours, painted_colours
from fxlab.drawing.typography import FONT
from fxlab.drawing.view import View
from fxlab.overlays import Overlay

POINTS = 72.0


def to_digraph(view: View, *, marks: Marks | None = None, overlay: Overlay | None = None) -> graphviz.Digraph:
    """Write a view in the DOT language.

    Parameters
    ----------
    view
        What is visible.
    marks
        Node name -> signatures of the transformations that changed the node.
    overlay
        What to colour boxes by. The graph's label is a legend then.

    Returns
    -------
    graphviz.Digraph
        Its node names are the box ids; boxes have fixed sizes, so that the layout is the same on every
        machine, whatever fonts it has.
    """
    marks = check_marks(marks)
    painting = paint(view, overlay) if overlay is not None else None
    return write_digraph(view, make_boxes(view, marks, signatures_of(marks)), painting)


def check_marks(marks: Marks | None) -> Marks:
    """Return the marks, or raise ``TypeError`` if they are not a mapping of names to lists of strings."""
    if marks is None:
        return {}
    if not isinstance(marks, Mapping):
        raise TypeError(f"marks expected a mapping of node name -> signatures, got {type(marks).__name__}.")
    for name, signatures in marks.items():
        if isinstance(signatures, str) or not isinstance(signatures, Iterable):
            raise TypeError(
                f"marks[{name!r}] expected a list of signatures, got {type(signatures).__name__}."
            )
    return marks


def signatures_of(marks: Marks) -> tuple[str, ...]:
    """Return the signatures in the order in which they first appear."""
    return tuple(dict.fromkeys(s for signatures in marks.values() for s in sorted(signatures)))


def write_digraph(view: View, boxes: Mapping[str, Box], painting: Painting | None = None) -> graphviz.Digraph:
    """Write a view whose boxes are made already."""
    graph = graphviz.Digraph("fxlab", encoding="utf-8")
    graph.attr(
        rankdir="TB", nodesep="0.28", ranksep="0.36", splines="true", nslimit="2", nslimit1="1", maxiter="8",
        mclimit="0.6", pad="0.15", bgcolor="transparent", fontname=FONT,
    )  # fmt: skip
    graph.attr(
        "node", shape="box", style="rounded,filled", fixedsize="true", fontname=FONT, margin="0", penwidth="1"
    )
    graph.attr("edge", color=EDGE, arrowsize="0.55", penwidth="1.1")
    if painting is not None:
        graph.attr(label=_legend_label(painting.legend), labelloc="b", labeljust="l")
    _write_children(graph, view.hierarchy.root, view, boxes, painting.colours if painting else {}, depth=0)
    for edge in view.edges:
        attributes = {"id": f"edge-{edge.source.id}-{edge.target.id}"}
        if len(edge.leaves) > 1:
            attributes["penwidth"] = "1.8"
        graph.edge(edge.source.id, edge.target.id, **attributes)
    return graph


def _write_children(
    graph: graphviz.Digraph,
    group: Group,
    view: View,
    boxes: Mapping[str, Box],
    painted: Mapping[str, Colours],
    depth: int,
) -> None:
    for child in group.children:
        box = boxes[child.id]
        if isinstance(child, Leaf) or not view.is_cluster(child):
            graph.node(child.id, **_node_attributes(box, painted.get(child.id)))
            continue
        colours = CLUSTER[depth % 2]
        with graph.subgraph(name=f"cluster_{child.id}") as inner:
            inner.attr(
                id=child.id, label=_cluster_label(box), labelloc="t", labeljust="l", style="rounded,filled",
                margin="14", fillcolor=colours.fill, color=colours.border, **{"class": box.classes},
            )  # fmt: skip
            _write_children(inner, child, view, boxes, painted, depth + 1)


def _node_attributes(box: Box, paint: Colours | None) -> dict[str, str]:
    colours = box_colours(box.classes) if paint is None else painted_colours(box.classes, paint)
    dashes = {"style": "rounded,filled,dashed"} if colours.dashed else {}
    return dashes | {
        "id": box.info.id,
        "label": _node_label(box, SOFT_INK if paint is None else INK),
        "class": box.classes.removeprefix("node "),
        "width": f"{box.width / POINTS:.4f}",
        "height": f"{box.height / POINTS:.4f}",
        "fillcolor": colours.fill,
        "color": colours.border,
    }


def _node_label(box: Box, soft_ink: str) -> str:
    rows = []
    if box.chips:
        names = "  ".join(chip.text for chip in box.chips)
        rows.append(_row(names, LINE_SIZE - 1, soft_ink))
    rows.append(_row(box.title, TITLE_SIZE, INK, bold=True))
    rows += [_row(line, LINE_SIZE, soft_ink) for line in box.lines]
    if box.badge:
        rows.append(_row(box.badge, LINE_SIZE, soft_ink, bold=True))
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">{"".join(rows)}</TABLE>>'


def _cluster_label(box: Box) -> str:
    words = [
        _font(box.title, TITLE_SIZE, INK, bold=True),
        _font("  " + " ".join(_rest(box)), LINE_SIZE, SOFT_INK),
    ]
    # A fixed size: the room for the title must not depend on the fonts of the machine.
    return (
        '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" '
        f'WIDTH="{box.width:.0f}" HEIGHT="{box.height:.0f}">'
        f'<TR><TD ALIGN="LEFT">{"".join(words)}</TD></TR></TABLE>>'
    )


def _legend_label(legend: Legend) -> str:
    rows = [f'<TR><TD COLSPAN="3" ALIGN="LEFT">{_font(legend.title, TITLE_SIZE, INK, bold=True)}</TD></TR>']
    if legend.ends is not None:
        low, high = (f"<TD>{_font(words, LINE_SIZE, INK)}</TD>" for words in legend.ends)
        rows.append(f'<TR>{low}<TD BGCOLOR="{":".join(HEAT)}" WIDTH="140" HEIGHT="12"></TD>{high}</TR>')
    rows += [
        f'<TR><TD BGCOLOR="{colours.fill}" WIDTH="18"></TD>'
        f'<TD COLSPAN="2" ALIGN="LEFT">{_font(words, LINE_SIZE, INK)}</TD></TR>'
        for colours, words in legend.kinds
    ]
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="1">{"".join(rows)}</TABLE>>'


def _rest(box: Box) -> Sequence[str]:
    return [*box.lines, box.badge] if box.badge else box.lines


def _row(text: str, size: float, colour: str, *, bold: bool = False) -> str:
    return f"<TR><TD>{_font(text, size, colour, bold=bold)}</TD></TR>"


def _font(text: str, size: float, colour: str, *, bold: bool = False) -> str:
    escaped = html.escape(text) or " "
    if bold:
        escaped = f"<B>{escaped}</B>"
    return f'<FONT POINT-SIZE="{size}" COLOR="{colour}">{escaped}</FONT>'
