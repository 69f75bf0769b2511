"""The nodes that a query lights up in the graphs on a screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fxlab.view_model.graph_view.panes import Panes
from fxlab.view_model.search.node_index import LONGEST_MESSAGE, names_of_passes
from fxlab.view_model.search.query import QueryError
from fxlab.view_model.wire import clip

FOUND = "what is found"
"""On whose behalf groups are opened that hold nodes that are found."""


class NodeFilter:
    """A query that stays while groups open and close and the graph changes.

    Parameters
    ----------
    panes
        The graphs on the screen.
    """

    def __init__(self, panes: Panes) -> None:
        self._panes = panes
        self.query = ""
        """What is looked for; empty if nothing is."""
        self._found: list[list[str]] = []
        """The names that are found in each graph."""
        self.message = ""
        """Why no graph can answer the query."""

    def find(self, query: str) -> dict[str, Any]:
        """Return the best results of a query in the graph that is shown, see :class:`NodeSearch`."""
        return self._panes.shown.search.find(query, self._passes)

    def choose(self, query: str) -> None:
        """Light up what a query finds; an empty one ends it. The message says why one cannot be answered."""
        self.query = query.strip()
        self.refresh()

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Go back to the query before if the ``with`` block raises."""
        before = self.query, self._found, self.message
        try:
            yield
        except BaseException:
            self.query, self._found, self.message = before
            raise

    def refresh(self) -> None:
        """Look again, after another graph is shown, and uncover what is found as far as the budget allows."""
        scenes = self._panes.scenes
        self._panes.shown.forget(FOUND)
        self._found, messages = [], []
        for scene in scenes if self.query else ():
            try:
                self._found.append(scene.search.names(self.query, self._passes))
            except QueryError as error:
                self._found.append([])
                messages.append(clip(str(error), LONGEST_MESSAGE))
        self.message = messages[0] if len(messages) == len(scenes) else ""
        for scene, names in zip(scenes, self._found, strict=False):
            scene.uncover(names, FOUND)

    @property
    def first(self) -> tuple[list[str], bool]:
        """What is found in the first graph that has any, and whether that is the one beside."""
        return next(((names, i > 0) for i, names in enumerate(self._found) if names), ([], False))

    def state(self) -> dict[str, Any]:
        """Describe the query and how many of the found nodes are in each visible box."""
        if not self.query:
            return {}
        boxes = [
            _counts(names, scene.view.box_of)
            for scene, names in zip(self._panes.scenes, self._found, strict=True)
        ]
        return {
            "query": self.query,
            "count": len(self._found[0]),
            "message": self.message,
            "boxes": boxes[0],
            "before": boxes[1] if len(boxes) > 1 else {},
        }

    @property
    def _passes(self) -> dict[str, tuple[str, str]]:
        return names_of_passes(self._panes.stages.session.passes)


def _counts(names: Iterable[str], box_of: Mapping[str, str]) -> dict[str, int]:
    return dict(Counter(box_of[name] for name in names if name in box_of))
