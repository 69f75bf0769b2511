"""The widget: a session on a screen."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from fxlab.drawing import LayoutError, start_layout_worker
from fxlab.drawing.rendering.layout import lay_out
from fxlab.html_report.front_end import FrontEndMissingError, front_end_file
from fxlab.html_report.static_view import static_view
from fxlab.interrupts import interrupts_noted
from fxlab.notebook import messages
from fxlab.notebook.main_thread import run_in_main_thread
from fxlab.overlays import SOURCES, Overlay, from_table
from fxlab.transformations import RewritePass
from fxlab.view_model import pass_offer
from fxlab.view_model.description import describe
from fxlab.view_model.graph_view.measured_overlays import MeasuredOverlays
from fxlab.view_model.graph_view.node_filter import NodeFilter
from fxlab.view_model.graph_view.overlay_state import PAINTS, overlay_state
from fxlab.view_model.graph_view.panes import Panes, Selection
from fxlab.view_model.graph_view.picture_state import picture_state
from fxlab.view_model.graph_view.scene import marks_of
from fxlab.view_model.measurements import MEASUREMENTS, Measurement
from fxlab.view_model.pass_state import (
    describe_error,
    explain_all,
    matched_nodes,
    pass_states,
    readable_name,
)
from fxlab.view_model.search.query import QueryError
from fxlab.view_model.session_state import (
    NO_PASS_IS_ON,
    changed_nodes_state,
    model_name,
    outputs_state,
)
from fxlab.view_model.table_state import measured_state, stages_state
from fxlab.view_model.wire import clip, to_json

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session
    from fxlab.transformations import Transformation

_WRITABLE = frozenset({"height"})
"""Traits that a page may set; everything else it asks for by messages."""

_CANCELLED = "Cancelled. "
"""Said before what stays when the making of a table is stopped."""


class Inspector(anywidget.AnyWidget):  # type: ignore[misc]
    """A session on the screen: the graph, a switch for each pass, and what the passes changed.

    Parameters
    ----------
    session
        What to show. Several inspectors can show one session, and follow its changes from Python.
    height
        Height of the screen in CSS pixels.

    Raises
    ------
    TypeError
        If ``session`` is not a session; :func:`fxlab.inspect` takes models too.
    RuntimeError
        If the package was installed without its front end.
    """

    # anywidget takes paths too, but then keeps every widget alive to tell it of changes of the file.
    _esm = front_end_file("inspector.js")
    _css = front_end_file("inspector.css")

    picture = traitlets.Dict().tag(sync=True)
    before = traitlets.Dict().tag(sync=True)
    passes = traitlets.Dict().tag(sync=True)
    details = traitlets.Dict().tag(sync=True)
    tables = traitlets.Dict().tag(sync=True)
    stages = traitlets.Dict().tag(sync=True)
    overlays = traitlets.Dict().tag(sync=True)
    found = traitlets.Dict().tag(sync=True)
    measured = traitlets.List().tag(sync=True)
    status = traitlets.Dict({"busy": None, "error": None}).tag(sync=True)
    height = traitlets.Int(720, min=240, max=4000).tag(sync=True)

    def __init__(self, session: Session, *, height: int = 720) -> None:
        if not hasattr(session, "graph_module") or not hasattr(session, "on_change"):
            raise TypeError(
                f"Inspector expected a fxlab.Session, got {type(session).__name__}. "
                "fxlab.inspect(model) makes the session too."
            )
        if not self._esm:
            raise FrontEndMissingError("inspector.js")
        start_layout_worker()
        self.session = session
        self._panes = Panes(session)
        self._scene, self._stages = self._panes.shown, self._panes.stages
        self._own_overlays: dict[str, Overlay] = {}
        self._overlay: str | None = None
        self._measured = MeasuredOverlays(session)
        self._applied = self._signatures_on()
        self._explained: dict[str, pd.DataFrame | str] = {}
        self._selection: Selection | None = None
        self._pass_errors: dict[str, str] = {}
        self._number_of_errors = 0
        self._filter = NodeFilter(self._panes)
        self._svg = ""
        super().__init__(height=height)
        self._unsubscribe = _follow(session, self)
        self.on_msg(self._receive)
        self._refresh()

    # What a person does from Python.

    @property
    def selected(self) -> str | None:
        """Name of the selected node, or path of the selected group. Set a node's name to show the node."""
        return self._selection.name if self._selection else None

    @selected.setter
    def selected(self, name: str | None) -> None:
        if name is None:
            self._select(None)
        elif not isinstance(name, str):
            raise TypeError(f"selected expected the name of a node or None, got {type(name).__name__}.")
        elif name in self._scene.hierarchy.groups and name not in self._scene.hierarchy.position_of:
            self._select(Selection("group", name))
        else:
            self._select_node(name)

    def toggle(self, p: Transformation | str) -> None:
        """Switch a pass of the session on or off."""
        self.session.toggle(p)

    def open_group(self, path: str) -> None:
        """Show the inside of a group, such as ``"encoder.layer.0"``."""
        with self._panes.tentative():
            self._panes.open(path)
            self._redraw()

    def close_group(self, path: str) -> None:
        """Hide the inside of a group."""
        with self._panes.tentative():
            self._panes.close(path)
            self._redraw()

    def show_stage(self, number: int, compared: str | int = "", *, beside: bool = False) -> None:
        """Show a stage of the stack: 0 is the original, 1 the model after the first pass that is on.

        Parameters
        ----------
        number
            Of the stage.
        compared
            ``"below"``, ``"original"`` or the number of an earlier stage to see in one graph what is
            different from it.
        beside
            Whether to show the two side by side instead.

        Raises
        ------
        ValueError
            If there is no such stage, or it cannot be compared with that.
        """
        self._stages.go_to(number, compared, beside=beside)
        self._show_chosen()
        self._measure_overlay_again()

    def preview(self, p: Transformation | str) -> None:
        """Show what a pass would do to the present model; :meth:`end_preview` goes back.

        The session is not changed by it.

        Raises
        ------
        fxlab.TransformationError
            If the pass raises.
        """
        try:
            with self._panes.tentative():
                self._stages.preview(self.session.find(p))
                self._show_chosen()
        except BaseException:
            self.end_preview()
            raise
        self._focus(list(self._stages.marks), gently=True)
        self._measure_overlay_again()

    def end_preview(self) -> None:
        """Show again what was shown before :meth:`preview`."""
        self._stages.end_preview()
        self._show_chosen()
        self._measure_overlay_again()

    def filter(self, query: str | None) -> None:
        """Light up in the graph what a query finds, and dim the rest.

        Closed groups say how many of the nodes are in them. It stays while groups are opened and closed and
        passes switched.

        Parameters
        ----------
        query
            As in :func:`fxlab.find_nodes`, such as ``"by:merge-linears"`` or ``"path:input_ids..output"``;
            ``None`` to end it.

        Raises
        ------
        TypeError
            If it is neither text nor ``None``.
        ValueError
            If the query cannot be answered, for example because it names a node that is not there.
        """
        if query is not None and not isinstance(query, str):
            raise TypeError(f"filter expected a query or None, got {type(query).__name__}.")
        with self._panes.tentative(), self._filter.tentative():
            self._filter.choose(query or "")
            if self._filter.message:
                raise QueryError(self._filter.message)
            self._redraw()
        self._focus_found()

    def _focus_found(self) -> None:
        names, before = self._filter.first
        if names:
            # Who has selected something is looking at it.
            self._focus(names, gently=self._selection is not None, before=before)

    def _show_chosen(self) -> None:
        self._panes.show()
        self._filter.refresh()
        self._forget_selection_that_is_gone()
        self._show_stages()
        self._redraw()

    def overlay(self, what: str | pd.Series[Any] | pd.DataFrame | Overlay | None) -> None:
        """Colour the graph by a value of each node; groups by the sum, or the largest, of their nodes'.

        Parameters
        ----------
        what
            The name of one of :data:`fxlab.overlays.SOURCES`, such as ``"output-error"``, ``"time"`` or
            ``"flops"``, which is measured; a Series or a DataFrame indexed by node names, whose columns are
            then offered in the page as well; an :class:`fxlab.overlays.Overlay`; or ``None`` for the colours
            of kinds of nodes.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If there is no overlay of that name, or it cannot be measured.
        """
        if what is None or isinstance(what, str):
            return self._choose_overlay(what)
        own = [what] if isinstance(what, Overlay) else from_table(what)
        if not own:
            raise ValueError("overlay got a DataFrame without columns.")
        self._own_overlays |= {overlay.name: overlay for overlay in own}
        return self._choose_overlay(own[0].name)

    @property
    def svg(self) -> str:
        """The graph as it is shown, in the colours of paper."""
        overlay = next(iter(self._shown_overlays()), None)
        return self._svg if overlay is None else self._scene.draw(self._stages.signatures, overlay).svg

    def close(self) -> None:
        """Remove the inspector from all pages; the session lives on."""
        unsubscribe = self.__dict__.pop("_unsubscribe", None)
        if unsubscribe is not None:
            unsubscribe()
        super().close()

    # What a page asks for.

    def set_state(self, sync_data: object) -> None:
        """Take over what a page set, and nothing that a page has no business setting."""
        if not isinstance(sync_data, dict):
            words = f"A state is an object with values of traits, got {type(sync_data).__name__}."
            self._show_error("The page sent a value that is not allowed", words)
            return
        allowed = {name: value for name, value in sync_data.items() if name in _WRITABLE}
        try:
            super().set_state(allowed)
        except traitlets.TraitError as error:
            self._show_error("The page sent a value that is not allowed", error)

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        run_in_main_thread(lambda: self._handle(content), self._finish)

    def _handle(self, content: object) -> None:
        try:
            message = messages.parse_message(content)
        except messages.MessageError as error:
            self._show_error("The page sent a message that was not understood", error)
        else:
            with self._reporting():
                self._answer(message)

    def _finish(self) -> None:
        """Say that a message was answered, wherever an interrupt has ended that."""
        if self.status["busy"]:
            self._show_busy(None)
        pending = {state["name"] for state in self.measured if state["state"] == "pending"}
        for measurement in MEASUREMENTS:
            if measurement.name in pending:
                self._show_measured(measurement.name, _cancelled(measurement.not_made()))
        self.send({"type": "done"})

    def _answer(self, message: messages.Message) -> None:
        match message:
            case messages.Toggle(signature, on):
                self._switch(signature, on)
            case messages.Preview(signature):
                self._try_out(self._offered(signature))
            case messages.EndPreview():
                self.end_preview()
            case messages.Exclude(signature, name):
                self._leave_out(self._offered(signature), name)
            case messages.Include(signature, name):
                self._take_again(self._offered(signature), name)
            case messages.Move(signature, place):
                self._rearrange(self._offered(signature), place)
            case messages.ListOffers(request):
                found = [offer.state() for offer in pass_offer.offers(self.session)]
                self.send({"type": "offers", "request": request, "offers": found})
            case messages.Add(key, arguments):
                self._work("Adding a pass", lambda: pass_offer.add(self.session, key, arguments))
            case messages.Remove(signature):
                self._withdraw(self._offered(signature))
            case messages.Undo():
                self._work("Taking the last change back", self.session.undo, if_=self.session.can_undo)
            case messages.Redo():
                self._work("Repeating the change", self.session.redo, if_=self.session.can_redo)
            case messages.Reset():
                self._work("Switching all passes off", self.session.revert_all)
            case messages.Refresh():
                self._work("Computing the tables again", self._refresh)
            case messages.Judge():
                self._work("Measuring the model's own rounding in float64", self._judge)
            case messages.Measure(name):
                self._measure(name)
            case messages.OpenGroup(path):
                self.open_group(path)
            case messages.CloseGroup(path):
                self.close_group(path)
            case messages.Overview():
                with self._panes.tentative():
                    self._scene.overview()
                    self._redraw()
            case messages.SelectNode(name, show, before):
                self._select_node(name, show=show, before=before)
            case messages.SelectGroup(path, before):
                self._select(Selection("group", path, before))
            case messages.ClearSelection():
                self._select(None)
            case messages.RevealPass(signature):
                self._reveal(self._offered(signature))
            case messages.Search(query, request):
                self.send({"type": "found", "request": request, **self._filter.find(query)})
            case messages.Filter(query):
                self._light_up(query)
            case messages.ExportDot(request):
                self.send({"type": "dot", "request": request, "text": self._dot()})
            case messages.ExportPdf(request):
                self._work("Making the PDF", lambda: self._send_pdf(request))
            case messages.ShowStage(stage, compared, beside):
                with self._panes.tentative():
                    self.show_stage(stage, compared, beside=beside)
            case messages.ShowNode(name, stage):
                self._show_node_of(name, stage)
            case messages.ShowOverlay(name):
                self._work("Measuring what each node costs", lambda: self._choose_overlay(name or None))

    def _switch(self, signature: str, on: bool) -> None:
        p = self._offered(signature)
        if self.session.is_on(p) == on:
            return
        words = f"{'Applying' if on else 'Taking back'} {readable_name(p)}"
        action = self.session.apply if on else self.session.revert
        self._change(p, words, f"could not be switched {'on' if on else 'off'}", lambda: action(p))

    def _rearrange(self, p: Transformation, place: int) -> None:
        words = f"Moving {readable_name(p)}"
        self._change(p, words, "could not be moved", lambda: self.session.move(p, place))

    def _withdraw(self, p: Transformation) -> None:
        words = f"Removing {readable_name(p)}"
        self._change(p, words, "could not be removed", lambda: self.session.remove(p))

    def _try_out(self, p: Transformation) -> None:
        words = f"Trying out {readable_name(p)}"
        self._change(p, words, "could not be previewed", lambda: self.preview(p))

    def _leave_out(self, p: Transformation, node: str) -> None:
        before, selection = set(self.session.excluded(p.name)), self._selection
        words = f"Taking back one rewrite of {readable_name(p)}"
        self._change(p, words, "could not leave that out", lambda: self.session.exclude(p, node))
        fresh = [candidate for candidate in self.session.excluded(p.name) if candidate not in before]
        self._move_on(selection, node, [name for candidate in fresh for name in candidate])

    def _take_again(self, p: Transformation, node: str) -> None:
        selection = self._selection
        words = f"Applying one rewrite of {readable_name(p)}"
        self._change(p, words, "could not apply that again", lambda: self.session.include(p, node))
        now = self.session.find(p.name)
        records = now.rewrites(self._scene.graph_module) if isinstance(now, RewritePass) else []
        self._move_on(selection, node, [n for r in records if node in r.candidate for n in r.marked])

    def _move_on(self, selection: Selection | None, node: str, names: Sequence[str]) -> None:
        """Select what a node has become, if it was selected."""
        there = [name for name in names if self._panes.holds(Selection("node", name))]
        if selection == Selection("node", node) and there:
            self._select_node(there[0])

    def _light_up(self, query: str) -> None:
        """Do as :meth:`filter`; a query that cannot be answered is shown with the reason."""
        with self._panes.tentative(), self._filter.tentative():
            self._filter.choose(query)
            self._redraw()
        self._focus_found()

    def _change(self, p: Transformation, words: str, failure: str, action: Callable[[], None]) -> None:
        self._pass_errors.pop(p.signature, None)
        try:
            self._work(words, action)
        except Exception as error:
            self._pass_errors[p.signature] = describe_error(error)
            self._show_error(f"{readable_name(p)} {failure}", error)
            self._show_passes()

    def _offered(self, signature: str) -> Transformation:
        for p in self.session.passes:
            if p.signature == signature:
                return p
        raise messages.MessageError(f"The session has no pass with the signature {signature!r}.")

    def _work(self, words: str, action: Callable[[], object], *, if_: bool = True) -> None:
        if not if_:
            return
        try:
            self._show_busy(words)
            action()
        finally:
            self._show_busy(None)

    def _send_pdf(self, request: str) -> None:
        pdf = lay_out(self._dot(), "pdf")
        self.send({"type": "pdf", "request": request}, buffers=[pdf])

    def _dot(self) -> str:
        return self._panes.dot(self._shown_overlays())

    # What the screen shows.

    def _session_changed(self) -> None:
        with self._reporting():
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
        """Show at least what is on: the session has changed, though the screen is not complete."""
        self._show_passes()
        words = "The work was interrupted: the graph and the tables may be out of date."
        self.tables = {**self.tables, "outputs": {"state": "failed", "text": words, "table": None}}
        self._show_error("Interrupted", words)

    def _refresh(self, changed_by: Sequence[Transformation] = ()) -> None:
        """Show everything as it is now, what a person looks at first first."""
        self._show_step("Drawing the graph", 1)
        self._explained = explain_all(self.session)
        self._forget_selection_that_is_gone()
        with self._reporting():
            self._draw()
        self._show_passes()
        self._show_stages()
        self._show_details()
        self.measured = [measurement.not_made() for measurement in MEASUREMENTS]
        changed = [name for p in changed_by for name in self._changed_by(p)]
        if changed:
            self._focus(changed, gently=True)
        self._show_tables()
        with self._reporting():
            self._measure_overlay_again()

    def _redraw(self) -> None:
        self._draw()
        self._show_details()

    def _draw(self) -> None:
        picture, *beside = self._panes.draw()
        self._svg = picture.svg
        compared = {"compared": self._stages.shows_changes, "preview": self._stages.previewed is not None}
        matches = matched_nodes(self._explained)
        self.picture = picture_state(picture, self._scene.view.box_of, matches) | compared
        self.before = {"picture": picture_state(beside[0], {}, {}) | compared} if beside else {}
        self.found = self._filter.state()
        if self._overlay is None or self._shown_overlays():
            self._show_overlays()

    def _show_stages(self) -> None:
        self.stages = self._stages.state()

    def _choose_overlay(self, name: str | None) -> None:
        """Colour by an overlay, which is measured on the stages on the screen if it was not before."""
        if name is not None and name not in self._own_overlays:
            self._measured.measure(self._stages.on_screen, name)
        self._overlay = name
        self._show_overlays()

    def _shown_overlays(self) -> list[Overlay]:
        """Return what a person gave, or what was measured, for each stage on the screen if all are known."""
        if self._overlay is None:
            return []
        own, stages = self._own_overlays.get(self._overlay), self._stages.on_screen
        found = [own or self._measured.find(stage, self._overlay) for stage in stages]
        return [overlay for overlay in found if overlay] if all(found) else []

    def _show_overlays(self) -> None:
        offered = [(source.name, source.title) for source in SOURCES]
        offered += [(own.name, own.title) for own in self._own_overlays.values()]
        known = zip(self._shown_overlays(), self._panes.scenes, strict=False)
        states = [*(overlay_state(overlay, scene.view) for overlay, scene in known), None, None]
        self.overlays = {
            "offered": [{"name": name, "title": clip(title, 80)} for name, title in offered],
            "overlay": states[0],
            "before": states[1],
            "paints": PAINTS,
        }

    def _measure_overlay_again(self) -> None:
        """Keep the colours true after the graph has changed; an overlay that cannot be measured goes."""
        try:
            self._choose_overlay(self._overlay)
        except Exception:
            self._choose_overlay(None)
            raise

    def _show_passes(self) -> None:
        cards = pass_states(self.session, self._explained, marks_of(self.session.graph_module))
        for card in cards:
            card["error"] = self._pass_errors.get(card["signature"], "")
        self.passes = {
            "passes": cards,
            "canUndo": bool(self.session.can_undo),
            "canRedo": bool(self.session.can_redo),
            "code": clip(self.session.to_python(), 100_000),
        }

    def _show_details(self) -> None:
        self.details = to_json(describe(self._selection, self.session, self._panes, self._explained))

    def _show_tables(self) -> None:
        changed = changed_nodes_state(self.session)
        if not self.session.applied:
            self.tables = {"outputs": NO_PASS_IS_ON, "nodes": changed}
            return
        pending = {"state": "pending", "text": "Comparing outputs with the original …", "table": None}
        self.tables = {"outputs": pending, "nodes": changed}
        self._show_step("Comparing outputs with the original", 2)
        try:
            outputs = outputs_state(self.session)
        except KeyboardInterrupt:
            outputs = {"state": "failed", "text": "The comparison was interrupted.", "table": None}
        self.tables = {"outputs": outputs, "nodes": changed}

    def _judge(self) -> None:
        self.session.verdict()
        self.tables = {**self.tables, "outputs": outputs_state(self.session)}

    def _measure(self, name: str) -> None:
        chosen = next((measurement for measurement in MEASUREMENTS if measurement.name == name), None)
        if chosen is None:
            raise messages.MessageError(f"There is no table {clip(name, 200)!r} to measure.")
        before = next(state for state in self.measured if state["name"] == name)
        shown = _cancelled(before if before["table"] else chosen.not_made())
        with interrupts_noted() as interrupted:
            try:
                self._show_measured(name, {"state": "pending", "text": f"{chosen.busy} …"})
                self._work(chosen.busy, lambda: shown.update(self._made(chosen)))
            except KeyboardInterrupt:
                pass
            except Exception as error:
                if not interrupted():
                    shown = {"state": "failed", "text": describe_error(error), "table": None}
            self._show_measured(name, shown)

    def _made(self, measurement: Measurement) -> dict[str, Any]:
        frame, words = measurement.make(self.session)
        if measurement.of_stages:
            table = stages_state(frame, measurement.index_title)
        else:
            table = measured_state(frame, measurement.index_title, self._scene.hierarchy.position_of)
        return {"state": "ready", "text": clip(words, 600), "table": table}

    def _show_measured(self, name: str, shown: dict[str, Any]) -> None:
        self.measured = [state | shown if state["name"] == name else state for state in self.measured]

    def _select_node(self, name: str, *, show: bool = True, before: bool = False) -> None:
        selection = self._panes.find_node(name, before)
        if show and not self._panes.is_visible(selection):
            with self._panes.tentative():
                self._panes.uncover(selection)
                self._draw()
        self._select(selection)
        if show:
            self._focus([name], before=selection.before)

    def _show_node_of(self, name: str, stage: int) -> None:
        """Select a node, at a stage that has it if what is shown has not."""
        if not any(self._panes.holds(Selection("node", name, before)) for before in (False, True)):
            with self._panes.tentative():
                self._stages.walk_to(stage)
                self._show_chosen()
            self._measure_overlay_again()
        self._select_node(name)

    def _select(self, selection: Selection | None) -> None:
        if selection and not self._panes.holds(selection):
            raise ValueError(f"The graph has no {selection.kind} named {clip(selection.name, 200)!r}.")
        self._selection = selection
        self._show_details()

    def _forget_selection_that_is_gone(self) -> None:
        if self._selection and not self._panes.holds(self._selection):
            self._selection = None

    def _reveal(self, p: Transformation) -> None:
        names = self._changed_by(p)
        with self._panes.tentative():
            self._scene.uncover(names, p.name)
            self._draw()
        self._focus(names)

    def _focus(self, names: list[str], *, gently: bool = False, before: bool = False) -> None:
        boxes = dict.fromkeys(filter(None, map(self._panes.scene(before).view.box_of.get, names)))
        self.send({"type": "focus", "boxes": list(boxes)[:500], "gently": gently, "before": before})

    def _changed_by(self, p: Transformation) -> list[str]:
        marked = marks_of(self.session.graph_module)
        return [name for name, marks in marked.items() if p.signature in marks]

    def _signatures_on(self) -> dict[str, str]:
        """Return the signatures of the passes that are on, by the names that they keep when limited."""
        return {p.name: p.signature for p in self.session.applied}

    # Words.

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn whatever goes wrong into words on the screen."""
        try:
            yield
        except KeyboardInterrupt:
            self._show_error("Interrupted", "The work was stopped. The switches show which passes are on.")
        except LayoutError as error:
            self._show_error("The graph could not be drawn", error)
        except Exception as error:
            self._show_error("That did not work", error)

    def _show_error(self, title: str, error: BaseException | str) -> None:
        self._number_of_errors += 1
        text = error if isinstance(error, str) else describe_error(error)
        self.status = {
            "busy": self.status["busy"],
            "error": {"number": self._number_of_errors, "title": title, "text": text},
        }

    def _show_busy(self, words: str | None) -> None:
        error = None if words else self.status["error"]
        self.status = {"busy": {"text": words, "step": 0} if words else None, "error": error}

    def _show_step(self, words: str, step: int) -> None:
        if self.status["busy"]:
            self.status = self.status | {"busy": {"text": words, "step": step}}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Add the picture and the tables, which viewers of saved notebooks show without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        nodes = len(self._scene.graph_module.graph.nodes)
        words = f"fxlab inspector: {model_name(self.session)}, {nodes} nodes"
        svg = self.svg
        static = {
            "text/html": static_view(words, svg, self.tables),
            "image/svg+xml": svg,
            "text/plain": f"<{words}>",
        }
        return {**data, **static}, metadata


def _follow(session: Session, inspector: Inspector) -> Callable[[], None]:
    """Keep an inspector up to date without keeping it alive."""
    reference = weakref.ref(inspector)

    def changed(_: Session) -> None:
        followed = reference()
        if followed is not None:
            followed._session_changed()

    unsubscribe: Callable[[], None] = session.on_change(changed)
    return unsubscribe


def _cancelled(measured: dict[str, Any]) -> dict[str, Any]:
    return measured | {"text": _CANCELLED + measured["text"].removeprefix(_CANCELLED)}
