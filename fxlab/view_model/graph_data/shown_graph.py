"""A graph that a page shows: a stage, two stages as one graph, or a pass's preview on the last one."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from fxlab.drawing.hierarchy.changes import CHANGES, merged_graph
from fxlab.graphs.unfolded import unfolded
from fxlab.transformations.marks import marks_of

Marks = dict[str, tuple[str, ...]]
"""Node name -> the passes that changed the node, by their signatures, or its kind of change."""


@dataclass(frozen=True)
class ShownGraph:
    """A graph, and its marks."""

    stage: fx.GraphModule = field(repr=False)
    """The stage itself, which is measured."""
    graph: fx.GraphModule = field(repr=False)
    """The drawn graph: the nodes of bodies are its own."""
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
        """Return two stages as one graph, in which nodes that differ are marked with their change."""
        return cls(after, *merged_graph(before, after), CHANGES)
