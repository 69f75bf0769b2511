"""Tables of a session that take a while, made when the page asks its screen, with progress and errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from fxlab.base.interrupts import interrupts_noted
from fxlab.graphs.unfolded import unfolded
from fxlab.notebook.page.messages import MessageError
from fxlab.view_model.measurements import MEASUREMENTS, Measurement
from fxlab.view_model.pass_state import located_error
from fxlab.view_model.protocol import Measured
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session

_CANCELLED = "Cancelled. "
"""Stands before the text of a table whose making was stopped."""


class MeasuredTables:
    """Tables of a session on demand, which ``show`` takes whenever one has changed."""

    def __init__(self, session: Session, show: Callable[[list[Measured]], None]) -> None:
        self._session = session
        self._show = show
        self._states: list[Measured] = []

    def reset(self) -> None:
        """Forget the tables: the session has changed."""
        offered = (measurement for measurement in MEASUREMENTS if measurement.is_made_of(self._session))
        self._states = [measurement.not_made() for measurement in offered]
        self._show(self._states)

    def make(self, name: str, busy: Callable[[str], AbstractContextManager[None]]) -> None:
        """Make a table, or say in its place why it could not be made; ``busy`` shows the progress."""
        chosen = next((measurement for measurement in MEASUREMENTS if measurement.name == name), None)
        if chosen is None or not chosen.is_made_of(self._session):
            raise MessageError(f"There is no table {clip(name, 200)!r} to measure.")
        before = next(state for state in self._states if state["name"] == name)
        shown = _cancelled(before if before["table"] else chosen.not_made())
        with interrupts_noted() as interrupted:
            try:
                self._update({**before, "state": "pending", "text": f"{chosen.busy} …"})
                with busy(chosen.busy):
                    shown = self._made(chosen)
            except KeyboardInterrupt:
                pass
            except Exception as error:
                if not interrupted():
                    failed: Measured = {
                        **before,
                        "state": "failed",
                        "text": located_error(error),
                        "table": None,
                    }
                    shown = failed
            self._update(shown)

    def cancel_pending(self) -> None:
        """Show tables as cancelled that an interrupt has left pending."""
        pending = {state["name"] for state in self._states if state["state"] == "pending"}
        for measurement in MEASUREMENTS:
            if measurement.name in pending:
                self._update(_cancelled(measurement.not_made()))

    def _made(self, measurement: Measurement) -> Measured:
        frame, words = measurement.make(self._session)
        # Rows of other nodes lead nowhere.
        nodes = {node.name for node in unfolded(self._session.graph_module).graph.nodes}
        table = measurement.table(frame, nodes)
        return {**measurement.not_made(), "state": "ready", "text": clip(words, 600), "table": table}

    def _update(self, shown: Measured) -> None:
        self._states = [shown if state["name"] == shown["name"] else state for state in self._states]
        self._show(self._states)


def _cancelled(measured: Measured) -> Measured:
    return {**measured, "text": _CANCELLED + measured["text"].removeprefix(_CANCELLED)}
