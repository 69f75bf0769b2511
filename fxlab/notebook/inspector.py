"""The widget: a session on a screen."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from fxlab.drawing import LayoutError, start_layout_worker
from fxlab.notebook import messages
from fxlab.screen.details import group_details, model_details, node_details
from fxlab.screen.front_end import FrontEndMissingError, front_end_file
from fxlab.screen.node_search import NodeSearch
from fxlab.screen.pass_state import (
    describe_error,
    explain_all,
    matched_nodes,
    pass_states,
    readable_name,
)
from fxlab.screen.picture_state import picture_state
from fxlab.screen.scene import Scene
from fxlab.screen.session_state import (
    NO_PASS_IS_ON,
    changed_nodes_state,
    judgement_state,
    model_name,
    outputs_state,
)
from fxlab.screen.wire import clip, to_json

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.drawing import Picture
    from fxlab.session import Session
    from fxlab.transformations import Transformation

_WRITABLE = frozenset({"height"})
"""Traits that a page may set; everything else it asks for by messages."""


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
    passes = traitlets.Dict().tag(sync=True)
    details = traitlets.Dict().tag(sync=True)
    tables = traitlets.Dict().tag(sync=True)
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
        self._scene = Scene(session.graph_module)
        self._applied = self._signatures_on()
        self._explained: dict[str, pd.DataFrame | str] = {}
        self._selection: tuple[str, str] | None = None
        self._pass_errors: dict[str, str] = {}
        self._number_of_errors = 0
        self._search: NodeSearch | None = None
        self._svg = ""
        super().__init__(height=height)
        self._unsubscribe = _follow(session, self)
        self.on_msg(self._receive)
        self._refresh()

    # What a person does from Python.

    @property
    def selected(self) -> str | None:
        """Name of the selected node, or path of the selected group. Set a node's name to show the node."""
        return self._selection[1] if self._selection else None

    @selected.setter
    def selected(self, name: str | None) -> None:
        if name is None:
            self._select(None)
        elif not isinstance(name, str):
            raise TypeError(f"selected expected the name of a node or None, got {type(name).__name__}.")
        elif name in self._scene.hierarchy.groups and name not in self._scene.hierarchy.position_of:
            self._select(("group", name))
        else:
            self._select_node(name)

    def toggle(self, p: Transformation | str) -> None:
        """Switch a pass of the session on or off."""
        self.session.toggle(p)

    def open_group(self, path: str) -> None:
        """Show the inside of a group, such as ``"encoder.layer.0"``."""
        with self._scene.tentative():
            self._scene.open(path)
            self._redraw()

    def close_group(self, path: str) -> None:
        """Hide the inside of a group."""
        with self._scene.tentative():
            self._scene.close(path)
            self._redraw()

    @property
    def svg(self) -> str:
        """The graph as it is shown."""
        return self._svg

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
        try:
            message = messages.parse_message(content)
        except messages.MessageError as error:
            self._show_error("The page sent a message that was not understood", error)
        else:
            with self._reporting():
                self._answer(message)
        self.send({"type": "done"})

    def _answer(self, message: messages.Message) -> None:
        match message:
            case messages.Toggle(signature, on):
                self._switch(signature, on)
            case messages.Undo():
                self._work("Taking the last change back", self.session.undo, if_=self.session.can_undo)
            case messages.Redo():
                self._work("Repeating the change", self.session.redo, if_=self.session.can_redo)
            case messages.Reset():
                self._work("Switching all passes off", self.session.reset)
            case messages.Refresh():
                self._work("Computing the tables again", self._refresh)
            case messages.Judge():
                self._work("Measuring the model's own rounding in float64", self._judge)
            case messages.OpenGroup(path):
                self.open_group(path)
            case messages.CloseGroup(path):
                self.close_group(path)
            case messages.Overview():
                with self._scene.tentative():
                    self._scene.overview()
                    self._redraw()
            case messages.SelectNode(name, show):
                self._select_node(name, show=show)
            case messages.SelectGroup(path):
                self._select(("group", path))
            case messages.ClearSelection():
                self._select(None)
            case messages.RevealPass(signature):
                self._reveal(self._offered(signature))
            case messages.Search(query, request):
                self.send({"type": "found", "request": request, **self._find(query)})
            case messages.Export(request):
                self.send({"type": "dot", "request": request, "text": self._scene.dot()})

    def _switch(self, signature: str, on: bool) -> None:
        p = self._offered(signature)
        if self.session.is_on(p) == on:
            return
        self._pass_errors.pop(signature, None)
        words = f"{'Applying' if on else 'Taking back'} {readable_name(p)}"
        try:
            self._work(words, lambda: self.session.apply(p) if on else self.session.revert(p))
        except Exception as error:
            self._pass_errors[signature] = describe_error(error)
            self._show_error(f"{readable_name(p)} could not be switched {'on' if on else 'off'}", error)
            self._show_passes()

    def _offered(self, signature: str) -> Transformation:
        for p in self.session.passes:
            if p.signature == signature:
                return p
        raise messages.MessageError(f"The session has no pass with the signature {signature!r}.")

    def _work(self, words: str, action: Callable[[], object], *, if_: bool = True) -> None:
        if not if_:
            return
        self._show_busy(words)
        try:
            action()
        finally:
            self._show_busy(None)

    def _find(self, query: str) -> dict[str, Any]:
        if self._search is None or self._search.graph_module is not self._scene.graph_module:
            self._search = NodeSearch(self._scene.graph_module, self._scene.hierarchy)
        return self._search.find(query)

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
        for signature in before:
            if signature not in self._applied:
                self._scene.forget(signature)
        self._scene.show(self.session.graph_module)
        fresh = [signature for signature in self._applied if signature not in before]
        for signature in fresh:
            self._scene.uncover(self._changed_by(signature), signature)
        self._refresh(changed_by=fresh)

    def _show_interruption(self) -> None:
        """Show at least what is on: the session has changed, though the screen is not complete."""
        self._show_passes()
        words = "The work was interrupted: the graph and the tables may be out of date."
        self.tables = {**self.tables, "outputs": {"state": "failed", "text": words, "table": None}}
        self._show_error("Interrupted", words)

    def _refresh(self, changed_by: list[str] | None = None) -> None:
        """Show everything as it is now, what a person looks at first first."""
        self._show_step("Drawing the graph", 1)
        self._explained = explain_all(self.session)
        if self._selection and not self._can_select(self._selection):
            self._selection = None
        with self._reporting():
            self._draw()
        self._show_passes()
        self._show_details()
        changed = [name for signature in changed_by or () for name in self._changed_by(signature)]
        if changed:
            self._focus(changed, gently=True)
        self._show_tables()

    def _redraw(self) -> None:
        self._draw()
        self._show_details()

    def _draw(self) -> None:
        picture: Picture = self._scene.draw([p.signature for p in self.session.passes])
        self._svg = picture.svg
        matches = matched_nodes(self._explained)
        self.picture = picture_state(picture, self._scene.view.box_of, matches)

    def _show_passes(self) -> None:
        cards = pass_states(self.session, self._explained, self._scene.marks())
        for card in cards:
            card["error"] = self._pass_errors.get(card["signature"], "")
        self.passes = {
            "passes": cards,
            "canUndo": bool(self.session.can_undo),
            "canRedo": bool(self.session.can_redo),
        }

    def _show_details(self) -> None:
        self.details = to_json(self._described())

    def _described(self) -> dict[str, Any]:
        hierarchy = self._scene.hierarchy
        if self._selection is None:
            names = [readable_name(p) for p in self.session.applied]
            return model_details(self._scene.graph_module, hierarchy, model_name(self.session), names)
        kind, name = self._selection
        if kind == "group":
            return group_details(
                hierarchy.groups[name], hierarchy, self._box_of_group(name), self._scene.marks()
            )
        node = hierarchy.leaves[hierarchy.position_of[name]].node
        if node.name != name:
            node = next(n for n in node.all_input_nodes if n.name == name)
        return node_details(node, hierarchy, self._scene.box_of(name), self._explained)

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
        judgement = judgement_state(self.session.verdict())
        self.tables = {**self.tables, "outputs": {**self.tables["outputs"], "judgement": judgement}}

    def _select_node(self, name: str, *, show: bool = True) -> None:
        if name not in self._scene.hierarchy.position_of:
            raise ValueError(f"The graph has no node named {clip(name, 200)!r}.")
        if show and not self._scene.is_visible(name):
            with self._scene.tentative():
                self._scene.uncover([name])
                self._draw()
        self._select(("node", name))
        if show:
            self._focus([name])

    def _select(self, selection: tuple[str, str] | None) -> None:
        if selection and not self._can_select(selection):
            raise ValueError(f"The graph has no {selection[0]} named {clip(selection[1], 200)!r}.")
        self._selection = selection
        self._show_details()

    def _reveal(self, p: Transformation) -> None:
        names = self._changed_by(p.signature)
        with self._scene.tentative():
            self._scene.uncover(names, p.signature)
            self._draw()
        self._focus(names)

    def _focus(self, names: list[str], *, gently: bool = False) -> None:
        boxes = dict.fromkeys(filter(None, map(self._scene.view.box_of.get, names)))
        self.send({"type": "focus", "boxes": list(boxes)[:500], "gently": gently})

    def _changed_by(self, signature: str) -> list[str]:
        return [name for name, marks in self._scene.marks().items() if signature in marks]

    def _signatures_on(self) -> tuple[str, ...]:
        return tuple(p.signature for p in self.session.applied)

    def _can_select(self, selection: tuple[str, str]) -> bool:
        kind, name = selection
        hierarchy = self._scene.hierarchy
        return name != "" and name in (hierarchy.groups if kind == "group" else hierarchy.position_of)

    def _box_of_group(self, path: str) -> str | None:
        view, group = self._scene.view, self._scene.hierarchy.groups[path]
        return group.id if group in view.boxes or group in view.clusters else None

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
        """Add the picture, which viewers of saved notebooks show without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        nodes = len(self._scene.graph_module.graph.nodes)
        words = f"<fxlab inspector: {model_name(self.session)}, {nodes} nodes>"
        return {**data, "image/svg+xml": self._svg, "text/plain": words}, metadata


def _follow(session: Session, inspector: Inspector) -> Callable[[], None]:
    """Keep an inspector up to date without keeping it alive."""
    reference = weakref.ref(inspector)

    def changed(_: Session) -> None:
        followed = reference()
        if followed is not None:
            followed._session_changed()

    unsubscribe: Callable[[], None] = session.on_change(changed)
    return unsubscribe
