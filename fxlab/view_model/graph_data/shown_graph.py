"""A graph that a page shows: a stage, two stages as one graph, or what a pass would make of the last one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import fx

from fxlab.drawing.hierarchy.changes import CHANGES, changes_between, merged_graph
from fxlab.graphs.unfolded import unfolded
from fxlab.transformations.marks import marks_of
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.transformations import Transformation

Marks = dict[str, tuple[str, ...]]
"""Node name -> the passes that changed the node, by their signatures, or what became of it."""


@dataclass(frozen=True)
class ShownGraph:
    """A graph, and what is marked in it."""

    stage: fx.GraphModule = field(repr=False)
    """The stage itself, which is what is measured."""
    graph: fx.GraphModule = field(repr=False)
    """What is drawn: the nodes of bodies are its own."""
    marks: Marks = field(repr=False)
    signatures: tuple[str, ...]
    """The marks in the order that numbers them."""

    @property
    def gone(self) -> frozenset[str]:
        """The nodes that are shown although only the earlier of two stages has them."""
        return frozenset(name for name, marks in self.marks.items() if marks == ("removed",))

    @classmethod
    def alone(cls, stage: fx.GraphModule, signatures: tuple[str, ...]) -> ShownGraph:
        """Return a stage with the marks of the passes of these signatures."""
        graph = unfolded(stage)
        return cls(stage, graph, marks_of(graph), signatures)

    @classmethod
    def merged(cls, before: fx.GraphModule, after: fx.GraphModule) -> ShownGraph:
        """Return two stages as one graph, in which nodes that differ are marked with what became of them."""
        return cls(after, *merged_graph(before, after), CHANGES)


def differences(before: fx.GraphModule, after: fx.GraphModule) -> tuple[Marks, tuple[str, ...]]:
    """Return what is marked in two stages side by side, and the marks in the order that numbers them."""
    return changes_between(before, after), CHANGES


def preview_of(session: Session, p: Transformation) -> tuple[ShownGraph, str]:
    """Try a pass out on a copy of a session's model; the session stays as it is.

    Returns
    -------
    tuple
        The present model and what the pass would make of it, as one graph; how much it would do, in words.

    Raises
    ------
    fxlab.TransformationError
        If the pass raises.
    """
    shown = ShownGraph.merged(session.graph_module, session.preview(p))
    return shown, clip(str(session.changes(p)), 300)
