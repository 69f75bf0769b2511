"""The view of a page, drawn without it: an inspector's picture for saved notebooks, PDF and scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlab.drawing import View, render, to_dot
from fxlab.drawing.rendering.dot import Arrangement
from fxlab.notebook.page.view_state import BELOW
from fxlab.overlays import Overlay

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.view_model.graph_data.session_graphs import SessionGraphs
    from fxlab.view_model.measured_overlays import MeasuredOverlays


class DrawnView:
    """The graphs of a :mod:`view <fxlab.notebook.page.view_state>`."""

    def __init__(
        self, session: Session, graphs: SessionGraphs, overlays: MeasuredOverlays, view: Mapping[str, Any]
    ) -> None:
        self._graphs, self._overlays, self._view = graphs, overlays, view
        last = len(session.applied)
        self.stage: int = last if view["stage"] is None else min(view["stage"], last)
        before = self.stage - 1 if view["compared"] == BELOW else view["compared"]
        self.before: int | None = before if isinstance(before, int) and 0 <= before < self.stage else None
        """The number of the stage that it is compared with."""

    @property
    def number(self) -> int:
        """The number of the graph that is shown."""
        if preview := self._graphs.state()["preview"]:
            return int(preview["graph"])
        if self.before is None or self._view["beside"]:
            return self._graphs.alone(self.stage)
        return self._graphs.merged(self.stage, self.before)

    @property
    def row(self) -> list[int]:
        """The numbers of the stages on the screen, from left to right."""
        if self.before is None or not self._view["beside"] or self._graphs.state()["preview"]:
            return [self.stage]
        between = {stage for stage in self._view["between"] if self.before < stage < self.stage}
        return [self.before, *sorted(between), self.stage]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all graphs on the screen: of the stage that is shown, and of those beside it."""
        return [self.number, *map(self._graphs.alone, self.row[:-1])]

    @property
    def opened(self) -> View:
        """The groups that are open in the graph that is shown."""
        return self._opened(self.number)

    @property
    def svg(self) -> str:
        """The graph that is shown, in the colours of paper."""
        shown = self._graphs.data.shown(self.number)
        return render(
            self.opened,
            marks=shown.marks,
            signatures=shown.signatures,
            overlay=self._overlay(self.number),
            arrangement=self._arrangement,
        )

    @property
    def dot(self) -> str:
        """The same in the DOT language."""
        return to_dot(
            self.opened,
            marks=self._graphs.data.shown(self.number).marks,
            overlay=self._overlay(self.number),
            arrangement=self._arrangement,
        )

    @property
    def _arrangement(self) -> Arrangement:
        return Arrangement(self._view["direction"], self._view["shapes"], self._view["lines"])

    def _opened(self, number: int) -> View:
        opened, hierarchy = self._view["opened"], self._graphs.data.hierarchy(number)
        if opened is None:
            return self._graphs.data.first_view(number)
        return View(hierarchy, frozenset(path for path in opened if path in hierarchy.groups))

    def _overlay(self, number: int) -> Overlay | None:
        # The page may name one that cannot be measured: it shows the graph without colours then.
        with contextlib.suppress(Exception):
            if name := self._view["overlay"]:
                return self._overlays.of(self._graphs.data.shown(number).stage, name)
        return None
