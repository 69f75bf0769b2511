"""A view as a ``graphviz.Digraph``."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import graphviz

from fxlab.drawing.box import LINE_SIZE, TITLE_SIZE, Box, Marks, make_boxes
from fxlab.drawing.hierarchy import Group, Leaf
from fxlab.drawing.palette import CLUSTER, EDGE, INK, SOFT_INK, box_colours
from fxlab.drawing.typography import FONT
from fxlab.drawing.view import View

POINTS = 72.0


def to_digraph(view: View, *, marks: Marks | None = None) -> graphviz.Digraph:
    """Write a view in the DOT language.

    Parameters
    ----------
    view
        What is visible.
    marks
        Node name -> signatures of the transformations that changed the node.

    Returns
    -------
    graphviz.Digraph
        Its node names are the box ids; boxes have fixed sizes, so that the layout is the same on every
        machine, whatever fonts it has.
    """
    marks = check_marks(marks)
    return write_digraph(view, make_boxes(view, marks, signatures_of(marks)))


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


def write_digraph(view: View, boxes: Mapping[str, Box]) -> graphviz.Digraph:
    """Write a view whose boxes are made already."""
    graph = graphviz.Digraph("fxlab", encoding="utf-8")
    graph.attr(
        rankdir="TB", nodesep="0.28", ranksep="0.36", splines="true", nslimit="1", nslimit1="1", maxiter="8",
        mclimit="0.6", pad="0.15", bgcolor="transparent", fontname=FONT,
    )  # fmt: skip
    graph.attr(
        "node", shape="box", style="rounded,filled", fixedsize="true", fontname=FONT, margin="0", penwidth="1"
    )
    graph.attr("edge", color=EDGE, arrowsize="0.55", penwidth="1.1")
    _write_children(graph, view.hierarchy.root, view, boxes, depth=0)
    for edge in view.edges:
        attributes = {"id": f"edge-{edge.source.id}-{edge.target.id}"}
        if len(edge.leaves) > 1:
            attributes["penwidth"] = "1.8"
        graph.edge(edge.source.id, edge.target.id, **attributes)
    return graph


def _write_children(
    graph: graphviz.Digraph, group: Group, view: View, boxes: Mapping[str, Box], depth: int
) -> None:
    for child in group.children:
        box = boxes[child.id]
        if isinstance(child, Leaf) or not view.is_cluster(child):
            graph.node(child.id, **_node_attributes(box))
            continue
        colours = CLUSTER[depth % 2]
        with graph.subgraph(name=f"cluster_{child.id}") as inner:
            inner.attr(
                id=child.id, label=_cluster_label(box), labeljust="l", style="rounded,filled", margin="14",
                fillcolor=colours.fill, color=colours.border, **{"class": box.classes},
            )  # fmt: skip
            _write_children(inner, child, view, boxes, depth + 1)


def _node_attributes(box: Box) -> dict[str, str]:
    colours = box_colours(box.classes)
    return {
        "id": box.info.id,
        "label": _node_label(box),
        "class": box.classes.removeprefix("node "),
        "width": f"{box.width / POINTS:.4f}",
        "height": f"{box.height / POINTS:.4f}",
        "fillcolor": colours.fill,
        "color": colours.border,
    }


def _node_label(box: Box) -> str:
    rows = []
    if box.chips:
        names = "  ".join(chip.text for chip in box.chips)
        rows.append(_row(names, LINE_SIZE - 1, SOFT_INK))
    rows.append(_row(box.title, TITLE_SIZE, INK, bold=True))
    rows += [_row(line, LINE_SIZE, SOFT_INK) for line in box.lines]
    if box.badge:
        rows.append(_row(box.badge, LINE_SIZE, SOFT_INK, bold=True))
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


def _rest(box: Box) -> Sequence[str]:
    return [*box.lines, box.badge] if box.badge else box.lines


def _row(text: str, size: float, colour: str, *, bold: bool = False) -> str:
    return f"<TR><TD>{_font(text, size, colour, bold=bold)}</TD></TR>"


def _font(text: str, size: float, colour: str, *, bold: bool = False) -> str:
    escaped = html.escape(text) or " "
    if bold:
        escaped = f"<B>{escaped}</B>"
    return f'<FONT POINT-SIZE="{size}" COLOR="{colour}">{escaped}</FONT>'
