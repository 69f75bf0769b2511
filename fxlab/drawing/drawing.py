"""``fxlab.draw``: a picture as SVG, PNG or PDF, for people without the widget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import fx

from fxlab.base.checks import file_to_write, items_of, positive_int, require_bool, type_error
from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.words import counted
from fxlab.drawing.hierarchy.hierarchy import build_hierarchy
from fxlab.drawing.rendering.box import HIGHLIGHT
from fxlab.drawing.rendering.dot import DOWN, PLAIN, RIGHT, Arrangement, render, to_dot
from fxlab.drawing.rendering.layout import lay_out, start_layout_worker
from fxlab.drawing.rendering.paint import ALIKE
from fxlab.drawing.view import BUDGET, View
from fxlab.front_desk.sources import Model, SessionLike, graph_of, inputs_of, resolved
from fxlab.graphs.unfolded import unfolded
from fxlab.models.running.arguments import Inputs, given_arguments, given_inputs
from fxlab.values.nested import RAISED

if TYPE_CHECKING:
    from fxlab.overlays.overlay import Overlay
    from fxlab.transformations import Transformation

Highlight: TypeAlias = "Transformation | fx.Node | str"
"""Nodes to highlight: those that a transformation has changed, a node, or a name of one."""

_HIGHLIGHTS = "transformations, nodes and names of nodes"
_SUFFIXES = (".svg", ".png", ".pdf", ".dot")
_DIRECTIONS = {"TB": DOWN, "vertical": DOWN, "LR": RIGHT, "horizontal": RIGHT}
_IN_A_NOTEBOOK = "max-width: 100%; height: auto; background: white"
"""A cell is as wide as it is, and may be dark; the picture has the colours of paper."""


class Drawing:
    """A picture of a graph; a notebook shows it as the value of a cell.

    Parameters
    ----------
    view
        The visible groups and nodes.
    marks
        Node name -> labels of the highlights of the node.
    overlay
        The overlay that colours the boxes.
    arrangement
        How they are arranged.

    Examples
    --------
    >>> import torch
    >>> def block():
    ...     return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> graph_module = torch.fx.symbolic_trace(torch.nn.Sequential(block(), block(), torch.nn.Tanh()))
    >>> closed = draw(graph_module, opened=[])
    >>> closed
    <Drawing: 7 nodes in 4 boxes>
    >>> closed.open("0")
    <Drawing: 7 nodes in 6 boxes>
    """

    def __init__(
        self,
        view: View,
        marks: dict[str, tuple[str, ...]] | None = None,
        overlay: Overlay | None = None,
        arrangement: Arrangement = PLAIN,
    ) -> None:
        self.view = view
        self.marks = dict(marks or {})
        self.overlay = overlay
        self.arrangement = arrangement

    @cached_property
    def svg(self) -> str:
        """The picture as SVG; laid out when first asked for."""
        return render(self.view, marks=self.marks, overlay=self.overlay, arrangement=self.arrangement)

    @property
    def source(self) -> str:
        """The picture in the DOT language, for other Graphviz tools."""
        return to_dot(self.view, marks=self.marks, overlay=self.overlay, arrangement=self.arrangement)

    def open(self, *paths: str) -> Drawing:
        """Return a drawing in which these groups are open too."""
        view = self.view
        for path in paths:
            view = view.open(path)
        return Drawing(view, self.marks, self.overlay, self.arrangement)

    def close(self, *paths: str) -> Drawing:
        """Return a drawing in which these groups are closed."""
        view = self.view
        for path in paths:
            view = view.close(path)
        return Drawing(view, self.marks, self.overlay, self.arrangement)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the picture to a file whose suffix says how: ``.svg``, ``.png``, ``.pdf`` or ``.dot``.

        Returns
        -------
        pathlib.Path
            The file.
        """
        file = file_to_write(path, "path", *_SUFFIXES)
        suffix = file.suffix.lower()
        if suffix == ".svg":
            data = self.svg.encode()
        elif suffix == ".dot":
            # Names from a model may hold lone surrogates, which UTF-8 cannot encode.
            data = self.source.encode("utf-8", "replace")
        else:
            data = lay_out(self.source, "png" if suffix == ".png" else "pdf")
        file.write_bytes(data)
        return file

    def _repr_html_(self) -> str:
        return self._repr_svg_()

    def _repr_svg_(self) -> str:
        return self.svg.replace("<svg ", f'<svg style="{_IN_A_NOTEBOOK}" ', 1)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        shown, total = len(self.view.boxes), self.view.hierarchy.root.nodes
        changed = f", {len(self.marks)} highlighted" if self.marks else ""
        colours = f", coloured by {self.overlay.title}" if self.overlay else ""
        return f"<Drawing: {counted(total, 'node')} in {counted(shown, 'box')}{changed}{colours}>"


def draw(
    graph: Model | SessionLike,
    inputs: Inputs | None = None,
    *,
    highlight: Iterable[Highlight] = (),
    overlay: str | os.PathLike[str] | pd.Series[Any] | pd.DataFrame | Overlay | None = None,
    opened: Iterable[str] | None = None,
    budget: int = BUDGET,
    direction: str = DOWN,
    shapes: bool = False,
    lines: str = ALIKE,
) -> Drawing:
    """Draw the graph of a model.

    Parameters
    ----------
    graph
        A graph module of any kind; an exported program; a session, of which the present graph module is
        drawn; a module or function, which is traced; or the error of one that raises, up to where it does.
    inputs
        The inputs to trace a module on, and to measure the overlay: keyword arguments (a mapping), positional
        arguments (a tuple) or one tensor. Left out, those of the session.
    highlight
        Transformations, nodes, and names of nodes. The groups that hold highlighted nodes are opened as far
        as ``budget`` allows.
    overlay
        The values to colour the graph by, with a legend below it: ``"time"``, ``"flops"``, ``"memory"``,
        ``"parameters"`` or ``"dtype"``; a Series, or a DataFrame of one column, indexed by node names, such
        as ``fxlab.compare_nodes(original, transformed, inputs)["accumulated"]``; a CSV or JSON file; or a
        :class:`fxlab.overlays.Overlay`. Groups have the sum of their nodes' values.
    opened
        Paths of the groups to open, such as ``"encoder.layer.0"``. By default, as many as stay readable.
    budget
        Most boxes to show by default.
    direction
        Where lines lead: ``"down"`` or ``"right"`` (``"TB"`` or ``"LR"`` in Graphviz).
    shapes
        Whether lines show the shapes of the tensors that flow along them.
    lines
        ``"dtype"`` colours lines by the dtypes of their tensors, ``"bytes"`` draws them thicker for more
        bytes; ``"alike"``, as at first, does neither.

    Returns
    -------
    Drawing
        Shows itself in a notebook; ``.save("graph.pdf")`` writes it to a file.

    Examples
    --------
    >>> import torch
    >>> graph_module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
    >>> draw(graph_module, highlight=["_1"])
    <Drawing: 4 nodes in 4 boxes, 1 highlighted>
    >>> draw(graph_module, overlay="flops", inputs=(torch.ones(1, 2),))
    <Drawing: 4 nodes in 4 boxes, coloured by FLOPs>
    """
    positive_int(budget, "budget")
    arrangement = Arrangement(_DIRECTIONS.get(direction, direction), require_bool(shapes, "shapes"), lines)
    found = resolved(graph, "graph")
    given = inputs_of(found, given_inputs(inputs))
    if given is not None:
        given_arguments(given)
    graph_module = graph_of(found, "graph", given)
    start_layout_worker()
    drawn = unfolded(graph_module)
    coloured_by = _overlay(graph_module, drawn, overlay, given)
    raised = (node for node in drawn.graph.nodes if RAISED in node.meta)
    marks = _marks(drawn, [*items_of(highlight, "highlight", _HIGHLIGHTS), *raised])
    hierarchy = build_hierarchy(drawn, marks)
    view = View.default(hierarchy) if opened is None else View(hierarchy)
    if opened is None and marks:
        view = view.reveal(marks, budget)
    for group in () if opened is None else items_of(opened, "opened", "group paths"):
        try:
            view = view.open(group)
        except (TypeError, ValueError) as error:
            raise type(error)(f"opened: {error}") from None
    return Drawing(view, marks, coloured_by, arrangement)


def _overlay(graph_module: fx.GraphModule, drawn: fx.GraphModule, wanted: Any, inputs: Any) -> Overlay | None:
    if wanted is None:
        return None
    from fxlab.overlays.overlay import is_overlay_file, overlays_of

    if isinstance(wanted, str) and not is_overlay_file(wanted):
        from fxlab.overlays import Subject, source

        return source(wanted).overlay(Subject(graph_module, inputs=inputs))
    own = overlays_of(wanted)
    if len(own) != 1:
        names = ", ".join(repr(column.name) for column in own)
        raise ValueError(f"overlay: expected a DataFrame of one column, got {len(own)}: {names}. Choose one.")
    own[0].check_is_of(drawn)
    return own[0].on(drawn)


def _marks(graph_module: fx.GraphModule, highlight: Iterable[Highlight]) -> dict[str, tuple[str, ...]]:
    names = {node.name for node in graph_module.graph.nodes}
    marks: dict[str, tuple[str, ...]] = {}
    for wanted in highlight:
        if isinstance(wanted, str):
            found, label = [wanted], HIGHLIGHT
        elif isinstance(wanted, fx.Node):
            found, label = [wanted.name], HIGHLIGHT
        elif not isinstance(wanted, type) and callable(getattr(wanted, "get_transformed_nodes", None)):
            found = [node.name for node in wanted.get_transformed_nodes(graph_module)]
            label = str(getattr(wanted, "signature", type(wanted).__name__))
        else:
            raise type_error("highlight", _HIGHLIGHTS, wanted)
        for name in found:
            if name not in names:
                raise ValueError(f"highlight: it names {name!r}, but the graph has no such node.")
            marks[name] = tuple(dict.fromkeys((*marks.get(name, ()), label)))
    return marks
