"""A view in the DOT language: as a ``graphviz.Digraph`` to look at, and as an outline to be laid out.

An outline has sizes and edges without words or colours, which takes Graphviz half the time. Boxes lie in
the same places with words, since cells have fixed sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import graphviz

from fxlab.drawing.hierarchy.hierarchy import Group, Leaf
from fxlab.drawing.rendering.box import LINE_SIZE, SHEET, Box, Marks, make_boxes, with_line
from fxlab.drawing.rendering.labels import box_label, cluster_label, heading_label, legend_label, room_label
from fxlab.drawing.rendering.paint import Legend, Painting, paint, paint_together
from fxlab.drawing.rendering.palette import (
    EDGE,
    INK,
    SOFT_INK,
    Colours,
    box_colours,
    cluster_colours,
    painted_colours,
)
from fxlab.drawing.rendering.typography import FONT
from fxlab.drawing.view import View, VisibleEdge
from fxlab.node_info import result_text
from fxlab.overlays.overlay import Overlay
from fxlab.units import counted

POINTS = 72.0
FEW_SHAPES = 3
"""A line that more shapes flow along says how many values do."""

DOWN, RIGHT = "down", "right"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The arrangement of boxes.

    Parameters
    ----------
    direction
        Where lines lead: ``"down"`` or ``"right"``.
    shapes
        Whether lines say the shapes of the values that flow.
    """

    direction: str = DOWN
    shapes: bool = False

    def __post_init__(self) -> None:
        if self.direction not in (DOWN, RIGHT):
            raise ValueError(f'direction: expected "down" or "right", got {self.direction!r}.')

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
_SEVERAL = {"penwidth": "1.8"}
_MAIN = {"weight": "6"}
"""Of the main path, whose boxes Graphviz puts below one another as far as it can."""
_CHANGED = {"penwidth": "2.2"}


PLAIN = Arrangement()


def to_digraph(
    view: View,
    *,
    marks: Marks | None = None,
    overlay: Overlay | None = None,
    arrangement: Arrangement = PLAIN,
) -> graphviz.Digraph:
    """Write a view in the DOT language.

    Parameters
    ----------
    view
        What is visible.
    marks
        Node name -> signatures of the transformations that changed the node.
    overlay
        What to colour boxes by. The graph's label is a legend then.
    arrangement
        How the boxes are arranged.

    Returns
    -------
    graphviz.Digraph
        Its node names are the box ids; boxes have fixed sizes, so that the layout is the same on every
        machine, whatever fonts it has.
    """
    marks = marks or {}
    painting = paint(view, overlay) if overlay is not None else None
    return write_digraph(view, make_boxes(view, marks, signatures_of(marks)), painting, arrangement)


@dataclass(frozen=True, slots=True)
class Side:
    """A view beside others in one drawing."""

    name: str
    """The heading."""
    view: View
    marks: Marks


def side_by_side(
    sides: Sequence[Side],
    overlays: Sequence[Overlay] = (),
    arrangement: Arrangement = PLAIN,
) -> graphviz.Digraph:
    """Write views in the DOT language, from left to right as one graph, each in a cluster with a heading.

    Parameters
    ----------
    sides
        The views. Node names are the box ids after the number of the side.
    overlays
        One for each side, if boxes are coloured; all are painted on one scale.
    arrangement
        How the boxes of each are arranged.
    """
    views = [side.view for side in sides]
    paintings = paint_together(list(zip(views, overlays, strict=True))) if overlays else []
    graph = _new_digraph(arrangement, paintings[0].legend if paintings else None)
    # Each side is laid out alone; they are put in a row in the order of their numbers, aligned at the top.
    graph.attr(pack="40", packmode=f"array_tu{len(sides)}")
    for number, (side, painting) in enumerate(zip_longest(sides, paintings)):
        boxes = make_boxes(side.view, side.marks, signatures_of(side.marks))
        with graph.subgraph(name=f"cluster_side-{number}") as cluster:
            cluster.attr(
                label=heading_label(side.name), labelloc="t", labeljust="c", style="rounded",
                color="transparent", margin="18", sortv=str(number + 1),
            )  # fmt: skip
            _write_view(cluster, side.view, boxes, painting, arrangement, f"side-{number}-")
    return graph


def signatures_of(marks: Marks) -> tuple[str, ...]:
    """Return the signatures in the order in which they first appear."""
    return tuple(dict.fromkeys(s for signatures in marks.values() for s in sorted(signatures)))


def write_digraph(
    view: View,
    boxes: Mapping[str, Box],
    painting: Painting | None = None,
    arrangement: Arrangement = PLAIN,
) -> graphviz.Digraph:
    """Write a view whose boxes are made already."""
    graph = _new_digraph(arrangement, painting.legend if painting else None)
    _write_view(graph, view, boxes, painting, arrangement)
    return graph


def outline(view: View, boxes: Mapping[str, Box]) -> str:
    """Write what decides where boxes and lines lie, in the DOT language: sizes, and no words or colours.

    Graphviz puts the boxes where it puts them for :func:`write_digraph`, in half the time. Pages that write
    their own words have their pictures laid out so.
    """
    lines = list(outline_head(PLAIN))
    _outline_children(lines, view.hierarchy.root, view, boxes)
    for edge in view.edges:
        source, target = edge.source.id, edge.target.id
        attributes = {"id": f"edge-{source}-{target}", **_line_attributes(view, edge)}
        lines.append(f'"{source}" -> "{target}" [{_listed(attributes)}]')
    return "\n".join([*lines, "}"])


def _listed(attributes: Mapping[str, str]) -> str:
    """Write attributes whose values need no escape: numbers, words and ids."""
    return " ".join([f'{name}="{value}"' for name, value in attributes.items()])


def outline_head(arrangement: Arrangement) -> tuple[str, ...]:
    """Return the lines that an outline begins with."""
    return (
        "digraph {",
        f"graph [{_listed(arrangement.layout)}]",
        f"node [{_listed(_BOXES)}]",
        f"edge [{_listed(_LINES)}]",
        'node [label=""]',
    )


def _outline_children(lines: list[str], group: Group, view: View, boxes: Mapping[str, Box]) -> None:
    for child in group.children:
        box, name = boxes[child.id], child.id
        if isinstance(child, Leaf) or not view.is_cluster(child):
            lines.append(f'"{name}" [{_listed({"id": name, **_size(box)})}]')
            continue
        lines.append(f'subgraph "cluster_{name}" {{')
        lines.append(f"graph [{_listed({'id': name, **_CLUSTERS})} label={room_label(box)}]")
        _outline_children(lines, child, view, boxes)
        lines.append("}")


def _new_digraph(arrangement: Arrangement, legend: Legend | None) -> graphviz.Digraph:
    graph = graphviz.Digraph("fxlab", encoding="utf-8")
    font = {"fontname": FONT, "fontsize": str(LINE_SIZE), "fontcolor": SOFT_INK}
    graph.attr(bgcolor="transparent", **font, **arrangement.layout)
    graph.attr("node", style="rounded,filled", **font, **_BOXES)
    graph.attr("edge", color=EDGE, **font, **_LINES)
    if legend is not None:
        graph.attr(label=legend_label(legend), labelloc="b", labeljust="l")
    return graph


def _write_view(
    graph: graphviz.Digraph,
    view: View,
    boxes: Mapping[str, Box],
    painting: Painting | None,
    arrangement: Arrangement,
    prefix: str = "",
) -> None:
    """Write boxes and edges into a graph, whose ids then begin with the prefix.

    As lines of its body: :class:`graphviz.Digraph` would take as long again to look for what needs an escape.
    """
    colours = painting.colours if painting else {}
    if painting is not None and painting.labels:
        boxes = {id: with_line(box, painting.labels.get(id, "")) for id, box in boxes.items()}
    _write_children(graph, view.hierarchy.root, view, boxes, colours, prefix, depth=0)
    for edge in view.edges:
        source, target = prefix + edge.source.id, prefix + edge.target.id
        attributes = {"id": f"edge-{source}-{target}", **_line_attributes(view, edge)}
        label = f" label={graphviz.quoting.quote(values_text(edge))}" if arrangement.shapes else ""
        graph.body.append(f'\t"{source}" -> "{target}" [{_listed(attributes)}{label}]\n')


def _write_children(
    graph: graphviz.Digraph,
    group: Group,
    view: View,
    boxes: Mapping[str, Box],
    painted: Mapping[str, Colours],
    prefix: str,
    depth: int,
) -> None:
    for child in group.children:
        box, name = boxes[child.id], prefix + child.id
        if isinstance(child, Leaf) or not view.is_cluster(child):
            attributes = _listed({"id": name, **_node_attributes(box, painted.get(child.id))})
            graph.body.append(f'\t"{name}" [{attributes} label={box_label(box)}]\n')
            continue
        colours = cluster_colours(box.classes, depth)
        with graph.subgraph(name=f"cluster_{name}") as inner:
            inner.attr(
                id=name, label=cluster_label(box), style="rounded,filled", fillcolor=colours.fill,
                color=colours.border, **_CLUSTERS, **{"class": box.classes},
            )  # fmt: skip
            _write_children(inner, child, view, boxes, painted, prefix, depth + 1)


def _node_attributes(box: Box, paint: Colours | None) -> dict[str, str]:
    """Return how a closed box looks but for its words."""
    colours = box_colours(box.classes) if paint is None else painted_colours(box.classes, paint)
    size = _size(box)
    own = {"style": "rounded,filled,dashed"} if colours.dashed else {}
    own |= {} if paint is None else {"fontcolor": INK}
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


def values_text(edge: VisibleEdge) -> str:
    """Return the shapes of the values that flow, or how many values do."""
    shapes = list(dict.fromkeys(text for leaf in edge.leaves if (text := result_text(leaf.node))))
    return ", ".join(shapes) if len(shapes) <= FEW_SHAPES else counted(len(edge.leaves), "value")


def _line_attributes(view: View, edge: VisibleEdge) -> dict[str, str]:
    is_main = (edge.source.id, edge.target.id) in view.main_path
    return (_SEVERAL if len(edge.leaves) > 1 else {}) | (_MAIN if is_main else {})
