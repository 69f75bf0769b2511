"""A session on the screen, the base of an inspector: graphs as data, passes, tables; written anew."""

from __future__ import annotations

import contextlib
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.base.first_use import pd
from fxlab.drawing.rendering.layout import lay_out
from fxlab.notebook.drawn_view import DrawnView
from fxlab.notebook.looked_at_values import LookedAtValues
from fxlab.notebook.measuring import MeasuredTables
from fxlab.notebook.page.messages import MessageError, answers
from fxlab.notebook.page.outline import is_outline
from fxlab.notebook.page.view_state import BELOW, NOTHING, checked_view
from fxlab.notebook.page.widget import PageWidget
from fxlab.view_model import session_state
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data.metrics import METRICS, PAINTS
from fxlab.view_model.graph_data.session_graphs import SessionGraphs
from fxlab.view_model.measured_overlays import MeasuredOverlays
from fxlab.view_model.pass_state import (
    explain,
    explain_unchanged,
    matched_nodes,
    pass_states,
    rewrites_of_node,
)
from fxlab.view_model.protocol import Extra, Outputs, PassError
from fxlab.view_model.session_remarks import session_remarks
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.session.first_look import FirstLook
    from fxlab.view_model.graph_data import GraphData


_LOOKS_FOR_S = 0.1
"""How long passes are asked for candidates before a page can be answered that asks for something else."""


class Screen(PageWidget):
    """A session as a page needs it, kept up to date. The page itself decides on its view."""

    def __init__(self, session: Session, *, height: int | None) -> None:
        self._session = session
        self._first_look: FirstLook | None = None
        """The check of the session's graph, if it was only recorded when it was first shown."""
        self._check_failure: Outputs | None = None
        """Words for a check that has ended without a result: it waits until the session is used."""
        self._places: set[str] = set()
        """Places in pages that show this, and perhaps in one that was killed: it costs, and is harmless."""
        self._is_behind = False
        """Whether the session has changed since the last refresh."""
        self._owes_outputs = False
        """Whether the outputs of the present stack are still to be compared."""
        self._session_graphs = SessionGraphs(session)
        self._sent: GraphData | None = None
        self._overlays = MeasuredOverlays(session)
        self._measured = MeasuredTables(session, lambda states: setattr(self, "_shown_measured", states))
        self._values = LookedAtValues(session)
        self._explained: dict[str, pd.DataFrame | str] = {}
        self._unchanged: dict[str, pd.DataFrame | str] = {}
        self._describers: dict[int, Describer] = {}
        self._pass_errors: dict[str, PassError] = {}
        super().__init__(height=height)
        self._unsubscribe = _follow(session, self)

    @property
    def session(self) -> Session:
        """The session. If its graph was only recorded yet, it is compared with the model first."""
        if self._is_unchecked:
            is_busy = bool(self._shown_status["busy"])
            with contextlib.nullcontext() if is_busy else self._busy("Checking the graph"):
                self._check_graph(in_slices=False)
        return self._session

    def _begin_with(self, look: FirstLook) -> None:
        """Show that the session was recorded only: its check follows while a page has no other request."""
        self._first_look = look
        self._show_tables()

    @property
    def _is_unchecked(self) -> bool:
        return self._first_look is not None and not self._first_look.is_checked

    def _check_graph(self, *, in_slices: bool) -> None:
        """Compare the graph of a first look with its model; the session tells when it was exchanged."""
        assert self._first_look is not None
        try:
            self._first_look.check(in_slices=in_slices)
        except BaseException as error:
            self._check_failure = session_state.check_failure(error)
            self._show_outputs(self._check_failure)
            raise
        self._catch_up()

    def _show_outputs(self, outputs: Outputs) -> None:
        self._owes_outputs = False
        self._shown_tables = {**self._shown_tables, "outputs": outputs}

    def close(self) -> None:
        """Remove the inspector from all pages; the session lives on."""
        unsubscribe = self.__dict__.pop("_unsubscribe", None)
        if unsubscribe is not None:
            unsubscribe()
        super().close()

    def _finish(self) -> None:
        self._measured.cancel_pending()
        super()._finish()

    # Changes of the session.

    def _session_changed(self) -> None:
        self._is_behind = True
        self._pass_errors.clear()
        if not self._places:
            # Nothing is asked of the session, but stages that are gone must not live on here.
            self._forget()
            self._session_graphs.clear()
            self._sent = None
            return
        with self._reporting("Showing the change"):
            try:
                self._catch_up()
            except KeyboardInterrupt:
                self._is_behind = False
                self._show_interruption()

    def _catch_up(self) -> None:
        if not self._is_behind:
            return
        self._is_behind = False
        try:
            self._refresh()
        except KeyboardInterrupt:
            self._is_behind = True
            raise
        except BaseException as error:  # the switches by which to mend it must go on working
            self._show_error("Showing the change failed", error)

    @answers("place", "Showing the inspector")
    def _place(self, name: str, on: bool) -> None:
        """Note that a page begins or ceases to show this at a place."""
        (self._places.add if on else self._places.discard)(name)

    @property
    def _graphs(self) -> SessionGraphs:
        """The graphs of the session, up to date."""
        self._catch_up()
        return self._session_graphs

    def _show_interruption(self) -> None:
        """Show at least which passes are on: the session has changed, though the screen is not complete."""
        self._show_passes()
        words = "The work was interrupted: the graph and the tables may be out of date."
        self._show_outputs({"state": "failed", "text": words, "table": None})
        self._show_error("Interrupted", words)

    def _refresh(self) -> None:
        """Send everything as it is now, the parts that a person looks at first before the others."""
        self._show_step("Drawing the graph")
        # The session looks for changes of the original once, and not at each question.
        with self._session._internals.held():
            self._forget()
            self._session_graphs.reset()
            with self._reporting("Drawing the graph"):
                number = self._graphs.alone(len(self._session.applied))
                if self._sent is None:
                    self._graphs.data.lay_out(number)
                # The page asks for candidates when it has drawn the graph: passes go through all of it.
                self._send_graphs(matches={})
            self._show_passes()
            self._look_at_last_stage()
            self._show_stages()
            self._shown_overlays = self._overlays.offered()
            self._measured.reset()
            self._show_tables()

    def _forget(self) -> None:
        """Forget answers about stages that may be gone."""
        self._explained, self._unchanged = {}, {}
        self._describers.clear()
        self._values.reset()

    def _look_at_last_stage(self) -> None:
        """Look at the last stage, compared with nothing; stages side by side stay side by side."""
        last, compared, view = len(self._session.applied), NOTHING, self._shown_view
        beside = bool(view["beside"] and last)
        if beside:
            compared = view["compared"]
            if isinstance(compared, int) and compared >= last:
                compared = BELOW
        between = [stage for stage in view["between"] if beside and stage < last]
        self._look(stage=None, compared=compared, beside=beside, between=between)

    def _look(self, **changes: Any) -> None:
        """Change the view of the page; raises ``ValueError`` for an impossible one."""
        self._shown_view = checked_view({**self._shown_view, **changes})
        # Only the changes: the page may know the rest of the view better than the kernel by now.
        self.send({"type": "look", "view": changes})

    # Messages to the page.

    def _send_graphs(self, matches: Mapping[str, list[str]] | None = None) -> None:
        """Send the data that the page has not received yet."""
        data = self._graphs.data
        new, anew = data.take(), data is not self._sent
        if matches is not None:  # none any more are news as well
            new["matches"] = matches
        if anew:
            new |= {"metrics": METRICS, "paints": PAINTS, "matches": matched_nodes(self._explained)}
            new["remarks"] = session_remarks(self._session)
        if matches is not None or any(new.values()):
            self._send_data(new, anew=anew)
        self._sent = data

    def _show_stages(self) -> None:
        self._shown_stages = self._graphs.state()

    def _show_passes(self) -> None:
        cards = pass_states(self._session, self._explained)
        for card in cards:
            card["error"] = self._pass_errors.get(card["signature"])
            # A function that raises cannot name its candidates either, for the same reason.
            card["note"] = "" if card["error"] else card["note"]
        self._shown_passes = {
            "passes": cards,
            "canUndo": bool(self._session._internals.can_undo),
            "canRedo": bool(self._session._internals.can_redo),
            "code": clip(self._session.to_python(), 100_000),
        }

    def _show_tables(self) -> None:
        changed = session_state.changed_nodes_state(self._session)
        if not self._session.applied:
            outputs = (
                self._check_failure or session_state.CHECKING
                if self._is_unchecked
                else session_state.outputs_state(self._session)
            )
            if self._first_look is not None and self._first_look.is_recorded_again:
                outputs = {**outputs, "text": f"{session_state.RECORDED_AGAIN} {outputs['text']}"}
            self._shown_tables, self._owes_outputs = {"outputs": outputs, "nodes": changed}, False
            return
        self._shown_tables = {"outputs": session_state.COMPARING, "nodes": changed}
        self._owes_outputs = True
        if not self._places:
            self._compare_outputs()

    def _compare_outputs(self) -> None:
        """Compare the outputs of the present stack, unless that is done.

        A page asks for it when it has painted the graph, which it would have to share the cores for.
        """
        if not self._owes_outputs:
            return
        try:
            outputs = session_state.outputs_state(self._session)
        except KeyboardInterrupt:
            outputs = {"state": "failed", "text": "The comparison was interrupted.", "table": None}
        self._show_outputs(outputs)

    @property
    def _drawn(self) -> DrawnView:
        """The view of the page, for pictures that are drawn without it."""
        return DrawnView(self._session, self._graphs, self._overlays, self._shown_view)

    # Requests of a page for data that it has not received.

    @answers("graph", "Showing the stage")
    def _add_graph(self, version: int, stage: int, before: int | None, beside: bool) -> None:
        state = self._graphs.state()
        # The session has changed meanwhile: the page is about to hear of it.
        if version != state["version"]:
            return
        self._check_stages(stage, before)
        if before is None:
            self._graphs.alone(stage)
        elif beside:
            self._graphs.pair(stage, before)
        else:
            self._graphs.merged(stage, before)
        self._send_graphs()
        self._show_stages()

    def _check_stages(self, stage: int, before: int | None) -> None:
        last = len(self._session.applied)
        if not 0 <= stage <= last or not (before is None or 0 <= before < stage):
            raise ValueError(f"There is no stage {stage} to compare with {before}: the last is {last}.")

    @answers("code", "Writing the code")
    def _add_code(self, version: int, stage: int, before: int | None) -> None:
        """Send the code of the shown graph: of a preview, or of a stage, alone or beside another."""
        state = self._graphs.state()
        if version != state["version"]:
            return
        if state["preview"]:
            self._graphs.code_of_preview()
        else:
            self._check_stages(stage, before)
            self._graphs.code(stage, before)
        self._send_graphs()
        self._show_stages()

    @answers("rest", "Sending the graph")
    def _send_rest(self, graph: int) -> bool:
        """Send some of the rest of a large graph; answer whether that was all."""
        is_all = self._graphs.data.fill(graph)
        self._send_graphs()
        return is_all

    @answers("candidates", "Looking for candidates")
    def _look_for_candidates(self) -> bool:
        """Check graph and outputs, then ask passes for candidates, in slices; answer whether that was all."""
        if self._is_unchecked and self._check_failure is None:
            with self._reporting("Checking the graph"):
                self._check_graph(in_slices=True)
            return False
        if self._owes_outputs:
            with self._busy("Comparing outputs with the original", background=True):
                self._compare_outputs()
            return False
        until = time.monotonic() + _LOOKS_FOR_S
        unasked = [p for p in self._session.passes if p.signature not in self._explained]
        try:
            while unasked:
                p = unasked[0]
                self._explained[p.signature] = explain(self._session, p)
                unasked.pop(0)
                if time.monotonic() > until:
                    break
        except KeyboardInterrupt:
            words = "Its candidates are unknown: the search was interrupted."
            self._explained |= {p.signature: words for p in unasked}
            unasked = []
        if not unasked:
            self._unchanged = explain_unchanged(self._session)
        self._describers.clear()
        self._show_passes()
        self._send_graphs(matches=matched_nodes(self._explained))
        return not unasked

    @answers("details", "Describing what is selected")
    def _details(self, graph: int, kind: str, name: str) -> Extra:
        data = self._graphs.data
        if graph not in self._describers:
            self._describers[graph] = Describer(
                data.hierarchy(graph),
                self._explained | self._unchanged,
                lambda node: rewrites_of_node(self._session, node, self._explained),
                data.shown(graph).gone,
            )
        describer = self._describers[graph]
        found: Any = None
        if kind == "group":
            found = data.hierarchy(graph).groups.get(name)
        elif kind == "node":
            found = next((node for node in data.shown(graph).graph.graph.nodes if node.name == name), None)
        if found is None:
            raise ValueError(f"The graph has no {clip(kind, 20)} named {clip(name, 200)!r}.")
        return describer.group(found) if kind == "group" else describer.node(found)

    @answers("overlay", "Measuring the overlay", is_slow=True)
    def _measure_overlay(self, graph: int, name: str) -> None:
        self._add_overlay(graph, name)

    def _add_overlay(self, graph: int, name: str) -> None:
        stage = self._graphs.data.shown(graph).stage
        self._graphs.data.add_overlay(graph, self._overlays.of(stage, name))
        self._send_graphs()

    @answers("lay-out", "Laying the graph out")
    def _lay_out(self, outline: str) -> str:
        """Lay out the drawing of a page that cannot run Graphviz itself."""
        if not is_outline(outline):
            raise ValueError("The page sent a graph that is not of its own making.")
        return lay_out(outline).decode()

    @answers("file", "Exporting the graph", is_slow=True)
    def _file(self, suffix: str) -> bytes:
        if suffix not in ("html", "pdf", "dot"):
            raise MessageError(f"A graph is exported as html, pdf or dot, not {clip(suffix, 20)!r}.")
        if suffix == "html":
            from fxlab.html_report.report import report

            with tempfile.TemporaryDirectory() as folder:
                return report(self.session, Path(folder, "report.html")).read_bytes()
        _ = self.session
        if len(self._drawn.row) > 1:
            raise MessageError("PDF and DOT files have one graph. Show one, or export these as SVG or PNG.")
        dot = self._drawn.dot
        return lay_out(dot, "pdf") if suffix == "pdf" else dot.encode("utf-8", "replace")


def _follow(session: Session, screen: Screen) -> Callable[[], None]:
    """Keep a screen up to date without keeping it alive."""
    reference = weakref.ref(screen)

    def changed(_: Session) -> None:
        followed = reference()
        if followed is not None:
            followed._session_changed()

    unsubscribe: Callable[[], None] = session.on_change(changed)
    return unsubscribe
