"""Tables and colours that are measured when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fxlab.interrupts import interrupts_noted
from fxlab.notebook.messages import MessageError
from fxlab.overlays import SOURCES, Overlay
from fxlab.view_model.graph_view.measured_overlays import MeasuredOverlays
from fxlab.view_model.graph_view.overlay_state import PAINTS, overlay_state
from fxlab.view_model.graph_view.panes import Panes
from fxlab.view_model.measurements import MEASUREMENTS, Measurement
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session

_CANCELLED = "Cancelled. "
"""Stands before the text of a table whose making was stopped."""


class MeasuredTables:
    """Tables on demand, as the page shows them.

    Parameters
    ----------
    session
        What they are made of.
    show
        Called with the states of all tables whenever one has changed.
    """

    def __init__(self, session: Session, show: Callable[[list[dict[str, Any]]], None]) -> None:
        self._session = session
        self._show = show
        self._states: list[dict[str, Any]] = []

    def reset(self) -> None:
        """Forget the tables: the session has changed."""
        self._states = [measurement.not_made() for measurement in MEASUREMENTS]
        self._show(self._states)

    def make(
        self, name: str, nodes: Container[str], busy: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        """Make a table; why it could not be made is said in its place.

        Parameters
        ----------
        name
            Of the measurement.
        nodes
            Names of the nodes in the graph that is shown: rows of others lead nowhere.
        busy
            Shows what is going on as long as it does.
        """
        chosen = next((measurement for measurement in MEASUREMENTS if measurement.name == name), None)
        if chosen is None:
            raise MessageError(f"There is no table {clip(name, 200)!r} to measure.")
        before = next(state for state in self._states if state["name"] == name)
        shown = _cancelled(before if before["table"] else chosen.not_made())
        with interrupts_noted() as interrupted:
            try:
                self._update(name, {"state": "pending", "text": f"{chosen.busy} …"})
                with busy(chosen.busy):
                    shown = self._made(chosen, nodes)
            except KeyboardInterrupt:
                pass
            except Exception as error:
                if not interrupted():
                    shown = {"state": "failed", "text": describe_error(error), "table": None}
            self._update(name, shown)

    def cancel_pending(self) -> None:
        """Show as cancelled what an interrupt has left pending."""
        pending = {state["name"] for state in self._states if state["state"] == "pending"}
        for measurement in MEASUREMENTS:
            if measurement.name in pending:
                self._update(measurement.name, _cancelled(measurement.not_made()))

    def _made(self, measurement: Measurement, nodes: Container[str]) -> dict[str, Any]:
        frame, words = measurement.make(self._session)
        return {"state": "ready", "text": clip(words, 600), "table": measurement.table(frame, nodes)}

    def _update(self, name: str, shown: dict[str, Any]) -> None:
        self._states = [state | shown if state["name"] == name else state for state in self._states]
        self._show(self._states)


class OverlayChoice:
    """The overlay that colours the graphs on the screen.

    Parameters
    ----------
    session
        What is measured.
    panes
        The graphs on the screen.
    """

    def __init__(self, session: Session, panes: Panes) -> None:
        self._panes = panes
        self._measured = MeasuredOverlays(session)
        self._own: dict[str, Overlay] = {}
        self.name: str | None = None
        """Of the overlay; ``None`` for the colours of kinds of nodes."""

    def offer(self, overlays: Iterable[Overlay]) -> None:
        """Offer overlays that a person has made."""
        self._own |= {overlay.name: overlay for overlay in overlays}

    def choose(self, name: str | None) -> None:
        """Colour by an overlay, which is measured on the stages on the screen if it was not before."""
        if name is not None and name not in self._own:
            self._measured.measure(self._panes.stages.on_screen, name)
        self.name = name

    @property
    def shown(self) -> list[Overlay]:
        """An overlay for each stage on the screen if all are known."""
        if self.name is None:
            return []
        own = self._own.get(self.name)
        found = [own or self._measured.find(stage, self.name) for stage in self._panes.stages.on_screen]
        return [overlay for overlay in found if overlay] if all(found) else []

    def state(self) -> dict[str, Any]:
        """Describe what is offered and shown."""
        offered = [(source.name, source.title) for source in SOURCES]
        offered += [(own.name, own.title) for own in self._own.values()]
        known = zip(self.shown, self._panes.scenes, strict=False)
        states = [*(overlay_state(overlay, scene.view) for overlay, scene in known), None, None]
        return {
            "offered": [{"name": name, "title": clip(title, 80)} for name, title in offered],
            "overlay": states[0],
            "before": states[1],
            "paints": PAINTS,
        }


def _cancelled(measured: dict[str, Any]) -> dict[str, Any]:
    return measured | {"text": _CANCELLED + measured["text"].removeprefix(_CANCELLED)}
