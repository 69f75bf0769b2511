"""A session on the screen: the graph, the passes, details and tables, redrawn whenever something changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fxlab.drawing import start_layout_worker
from fxlab.notebook.measuring import MeasuredTables, OverlayChoice
from fxlab.notebook.messages import answers
from fxlab.notebook.page_widget import PageWidget
from fxlab.view_model.description import describe
from fxlab.view_model.graph_view.node_filter import NodeFilter
from fxlab.view_model.graph_view.panes import Panes, Selection
from fxlab.view_model.graph_view.picture_state import picture_state
from fxlab.view_model.graph_view.scene import marks_of
from fxlab.view_model.pass_state import explain_all, matched_nodes, pass_states
from fxlab.view_model.session_state import NO_PASS_IS_ON, changed_nodes_state, outputs_state
from fxlab.view_model.wire import clip, to_json

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session
    from fxlab.transformations import Transformation


class Screen(PageWidget):
    """What a page shows of a session, and follows its changes.

    Parameters
    ----------
    session
        What to show.
    height
        In CSS pixels.
    """

    def __init__(self, session: Session, *, height: int) -> None:
        start_layout_worker()
        self.session = session
        self._panes = Panes(session)
        self._scene, self._stages = self._panes.shown, self._panes.stages
        self._overlay = OverlayChoice(session, self._panes)
        self._measured = MeasuredTables(session, lambda states: setattr(self, "_shown_measured", states))
        self._applied = self._signatures_on()
        self._explained: dict[str, pd.DataFrame | str] = {}
        self._selection: Selection | None = None
        self._pass_errors: dict[str, str] = {}
        self._filter = NodeFilter(self._panes)
        self._svg = ""
        super().__init__(height=height)
        self._unsubscribe = _follow(session, self)
        self._refresh()

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
        with self._reporting("Showing the change"):
            try:
                self._show_change()
            except KeyboardInterrupt:
                self._show_interruption()

    def _show_change(self) -> None:
        before, self._applied = self._applied, self._signatures_on()
        self._pass_errors.clear()
        for name in before:
            if name not in self._applied:
                self._scene.forget(name)
        self._stages.reset()
        self._panes.show()
        for p in self.session.applied:
            if before.get(p.name) != self._applied[p.name]:
                self._scene.uncover(self._changed_by(p), p.name)
        self._filter.refresh()
        self._refresh(changed_by=[p for p in self.session.applied if p.name not in before])

    def _show_interruption(self) -> None:
        """Show at least which passes are on: the session has changed, though the screen is not complete."""
        self._show_passes()
        words = "The work was interrupted: the graph and the tables may be out of date."
        self._shown_tables = {
            **self._shown_tables,
            "outputs": {"state": "failed", "text": words, "table": None},
        }
        self._show_error("Interrupted", words)

    def _changed_by(self, p: Transformation) -> list[str]:
        marked = marks_of(self.session.graph_module)
        return [name for name, marks in marked.items() if p.signature in marks]

    def _signatures_on(self) -> dict[str, str]:
        """Return the signatures of the passes that are on, by the names that they keep when limited."""
        return {p.name: p.signature for p in self.session.applied}

    # What is drawn.

    def _refresh(self, changed_by: Sequence[Transformation] = ()) -> None:
        """Show everything as it is now, what a person looks at first first."""
        self._show_step("Drawing the graph", 1)
        self._explained = explain_all(self.session)
        self._forget_selection_that_is_gone()
        with self._reporting("Drawing the graph"):
            self._draw()
        self._show_passes()
        self._show_stages()
        self._show_details()
        self._measured.reset()
        changed = [name for p in changed_by for name in self._changed_by(p)]
        if changed:
            self._focus(changed, gently=True)
        self._show_tables()
        with self._reporting("Measuring the overlay"):
            self._measure_overlay_again()

    def _show_chosen(self) -> None:
        """Show the stages that are chosen now."""
        self._panes.show()
        self._filter.refresh()
        self._forget_selection_that_is_gone()
        self._show_stages()
        self._redraw()

    def _redraw(self) -> None:
        self._draw()
        self._show_details()

    def _draw(self) -> None:
        picture, *beside = self._panes.draw()
        self._svg = picture.svg
        compared = {"compared": self._stages.shows_changes, "preview": self._stages.previewed is not None}
        matches = matched_nodes(self._explained)
        self._shown_picture = picture_state(picture, self._scene.view.box_of, matches) | compared
        self._shown_before = {"picture": picture_state(beside[0], {}, {}) | compared} if beside else {}
        self._shown_found = self._filter.state()
        if self._overlay.name is None or self._overlay.shown:
            self._shown_overlays = self._overlay.state()

    def _choose_overlay(self, name: str | None) -> None:
        self._overlay.choose(name)
        self._shown_overlays = self._overlay.state()

    def _measure_overlay_again(self) -> None:
        """Keep the colours true after the graph has changed; an overlay that cannot be measured goes."""
        try:
            self._choose_overlay(self._overlay.name)
        except Exception:
            self._choose_overlay(None)
            raise

    # What is shown beside the graph.

    def _show_stages(self) -> None:
        self._shown_stages = self._stages.state()

    def _show_passes(self) -> None:
        cards = pass_states(self.session, self._explained, marks_of(self.session.graph_module))
        for card in cards:
            card["error"] = self._pass_errors.get(card["signature"], "")
        self._shown_passes = {
            "passes": cards,
            "canUndo": bool(self.session.can_undo),
            "canRedo": bool(self.session.can_redo),
            "code": clip(self.session.to_python(), 100_000),
        }

    def _show_details(self) -> None:
        self._shown_details = to_json(describe(self._selection, self.session, self._panes, self._explained))

    def _show_tables(self) -> None:
        changed = changed_nodes_state(self.session)
        if not self.session.applied:
            self._shown_tables = {"outputs": NO_PASS_IS_ON, "nodes": changed}
            return
        pending = {"state": "pending", "text": "Comparing outputs with the original …", "table": None}
        self._shown_tables = {"outputs": pending, "nodes": changed}
        self._show_step("Comparing outputs with the original", 2)
        try:
            outputs = outputs_state(self.session)
        except KeyboardInterrupt:
            outputs = {"state": "failed", "text": "The comparison was interrupted.", "table": None}
        self._shown_tables = {"outputs": outputs, "nodes": changed}

    # What is selected, and what the window shows.

    @answers("select-node", "Selecting the node")
    def _select_node(self, name: str, show: bool = True, before: bool = False) -> None:
        """Show a node's details, and bring the node itself into sight if ``show`` is set.

        ``before`` is set for a node of the stage beside the one that is shown.
        """
        selection = self._panes.find_node(name, before)
        if show and not self._panes.is_visible(selection):
            with self._panes.tentative():
                self._panes.uncover(selection)
                self._draw()
        self._select(selection)
        if show:
            self._focus([name], before=selection.before)

    @answers("select-group", "Selecting the group")
    def _select_group(self, path: str, before: bool) -> None:
        self._select(Selection("group", path, before))

    @answers("clear-selection", "Clearing the selection")
    def _clear_selection(self) -> None:
        self._select(None)

    def _select(self, selection: Selection | None) -> None:
        if selection and not self._panes.holds(selection):
            raise ValueError(f"The graph has no {selection.kind} named {clip(selection.name, 200)!r}.")
        self._selection = selection
        self._show_details()

    def _forget_selection_that_is_gone(self) -> None:
        if self._selection and not self._panes.holds(self._selection):
            self._selection = None

    def _focus(self, names: Iterable[str], *, gently: bool = False, before: bool = False) -> None:
        boxes = dict.fromkeys(filter(None, map(self._panes.scene(before).view.box_of.get, names)))
        self.send({"type": "focus", "boxes": list(boxes)[:500], "gently": gently, "before": before})

    def _focus_found(self) -> None:
        names, before = self._filter.first
        if names:
            # Who has selected something is looking at it.
            self._focus(names, gently=self._selection is not None, before=before)


def _follow(session: Session, screen: Screen) -> Callable[[], None]:
    """Keep a screen up to date without keeping it alive."""
    reference = weakref.ref(screen)

    def changed(_: Session) -> None:
        followed = reference()
        if followed is not None:
            followed._session_changed()

    unsubscribe: Callable[[], None] = session.on_change(changed)
    return unsubscribe
