"""The visible part of one graph: opened groups stay open when the graph changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import fx

from fxlab.drawing import Hierarchy, Picture, View, build_hierarchy, render, to_digraph
from fxlab.overlays import Overlay
from fxlab.transformations.marks import marks
from fxlab.view_model.search.node_index import NodeSearch

Marks = dict[str, tuple[str, ...]]

REVEAL_BUDGET = 110
"""Boxes that may be on the screen after the nodes a pass changed were uncovered."""


class Scene:
    """A graph and the groups of it that somebody opened.

    A group that was opened on behalf of a pass closes again when the pass goes; a group that a person opened
    stays, also while the graph has no such group.

    Parameters
    ----------
    graph_module
        The graph to show first.
    marks
        Its marks; those of the passes if none are given.
    """

    def __init__(self, graph_module: fx.GraphModule, marks: Marks | None = None) -> None:
        self._graph_module = graph_module
        self._marks = marks_of(graph_module) if marks is None else marks
        self.hierarchy: Hierarchy = build_hierarchy(graph_module)
        self._search: NodeSearch | None = None
        self._opened: dict[str, str] = {}
        """Path of a group -> the name of the pass it was opened for, or "" if a person opened it."""
        self.overview()

    def beside(self, graph_module: fx.GraphModule, marks: Marks) -> Scene:
        """Return a scene of another stage of the same model, in which the same groups are open, always."""
        other = Scene(graph_module, marks)
        other._opened = self._opened
        return other

    @property
    def graph_module(self) -> fx.GraphModule:
        """The graph on the screen."""
        return self._graph_module

    def show(self, graph_module: fx.GraphModule, marks: Marks | None = None) -> None:
        """Show another stage of the same model; marks are those of the passes if none are given."""
        self._marks = marks_of(graph_module) if marks is None else marks
        if graph_module is not self._graph_module:
            self.hierarchy = build_hierarchy(graph_module)
            self._graph_module = graph_module
            self._search = None

    @property
    def search(self) -> NodeSearch:
        """Looks for nodes and groups; what it looks through is read when it is first asked."""
        if self._search is None:
            self._search = NodeSearch(self._graph_module, self.hierarchy)
        return self._search

    @property
    def view(self) -> View:
        """The visible part of the graph."""
        return View(self.hierarchy, frozenset(p for p in self._opened if p in self.hierarchy.groups))

    def overview(self) -> None:
        """Open what a first picture shows, and nothing else."""
        self._keep_open(dict.fromkeys(View.default(self.hierarchy).opened, ""))

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Take back what was opened and closed in the ``with`` block if the block raises."""
        opened = dict(self._opened)
        try:
            yield
        except BaseException:
            self._keep_open(opened)
            raise

    def open(self, path: str) -> None:
        """Open a group; raises ``ValueError`` if there is none of that path."""
        self._open(self.view.open(path), "")

    def close(self, path: str) -> None:
        """Close a group; raises ``ValueError`` if there is none of that path."""
        kept = self.view.close(path).opened
        here = self.hierarchy.groups
        self._keep_open({p: why for p, why in self._opened.items() if p in kept or p not in here})

    def uncover(self, names: Iterable[str], pass_name: str = "") -> None:
        """Open the groups around nodes, on behalf of a pass if its name is given.

        What a person asked for is uncovered whatever it costs; for a pass there is a budget.
        """
        known = [name for name in names if name in self.hierarchy.position_of]
        view = self.view
        budget = max(REVEAL_BUDGET, len(view.boxes)) if pass_name else 10**6
        self._open(view.reveal(known, budget), pass_name)

    def forget(self, pass_name: str) -> None:
        """Close what was opened for a pass, unless a person opened something inside."""
        parents = self.hierarchy.parents
        needed: set[str] = set()
        for path, why in self._opened.items():
            around = path
            while why != pass_name and (around := parents.get(around, "")):
                needed.add(around)
        self._keep_open({p: why for p, why in self._opened.items() if why != pass_name or p in needed})

    def box_of(self, name: str) -> str | None:
        """Return the id of the visible box that draws a node."""
        return self.view.box_of.get(name)

    def box_of_group(self, path: str) -> str | None:
        """Return the id of the box or frame of a group, if it is visible."""
        view, group = self.view, self.hierarchy.groups[path]
        return group.id if group in view.boxes or group in view.clusters else None

    def nodes_of_group(self, path: str) -> tuple[str, ...]:
        """Return the names of the nodes in a group."""
        return self.hierarchy.names_in(self.hierarchy.groups[path])

    def is_visible(self, name: str) -> bool:
        """Whether a node has a box of its own on the screen."""
        leaf = self.hierarchy.leaves[self.hierarchy.position_of[name]]
        return self.box_of(name) == leaf.id

    def draw(self, signatures: Sequence[str], overlay: Overlay | None = None) -> Picture:
        """Lay the visible part out; ``signatures`` number the marks."""
        return render(self.view, marks=self.marks(), signatures=tuple(signatures), overlay=overlay)

    def dot(self, overlay: Overlay | None = None) -> str:
        """Return the visible part in the DOT language."""
        return str(to_digraph(self.view, marks=self.marks(), overlay=overlay).source)

    def marks(self) -> Marks:
        """Node name -> signatures of the passes that changed the node."""
        return self._marks

    def _keep_open(self, opened: dict[str, str]) -> None:
        # In place: a scene beside this one has the same groups open.
        self._opened.clear()
        self._opened.update(opened)

    def _open(self, view: View, pass_name: str) -> None:
        for path in view.opened:
            if not pass_name or path not in self._opened:
                self._opened[path] = pass_name


def marks_of(graph_module: fx.GraphModule) -> Marks:
    """Node name -> signatures of the passes that changed the node."""
    marked = {node.name: marks(node) for node in graph_module.graph.nodes}
    return {name: tuple(sorted(signatures)) for name, signatures in marked.items() if signatures}
