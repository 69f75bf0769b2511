"""The widget without a session: what is synced with the page, its messages, and errors in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import anywidget
import traitlets

from fxlab.html_report.front_end import FrontEndMissingError, front_end_file
from fxlab.notebook.main_thread import run_in_main_thread
from fxlab.notebook.messages import MessageError, parse_message
from fxlab.view_model.pass_state import describe_error

_WRITABLE = frozenset({"height"})
"""Traits that a page may set; everything else it asks for by messages."""


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page that shows traits, and asks for everything else by messages."""

    # anywidget takes paths too, but then keeps every widget alive to tell it of changes of the file.
    _esm = front_end_file("inspector.js")
    _css = front_end_file("inspector.css")

    _shown_picture = traitlets.Dict().tag(sync=True)
    _shown_before = traitlets.Dict().tag(sync=True)
    _shown_passes = traitlets.Dict().tag(sync=True)
    _shown_details = traitlets.Dict().tag(sync=True)
    _shown_tables = traitlets.Dict().tag(sync=True)
    _shown_stages = traitlets.Dict().tag(sync=True)
    _shown_overlays = traitlets.Dict().tag(sync=True)
    _shown_found = traitlets.Dict().tag(sync=True)
    _shown_measured = traitlets.List().tag(sync=True)
    _shown_status = traitlets.Dict({"busy": None, "error": None}).tag(sync=True)
    height = traitlets.Int(720, min=240, max=4000).tag(sync=True)

    def __init__(self, *, height: int) -> None:
        if not self._esm:
            raise FrontEndMissingError("inspector.js")
        self._number_of_errors = 0
        super().__init__(height=height)
        self.on_msg(self._receive)

    def set_state(self, sync_data: object) -> None:
        """Take over what a page set, and nothing that a page has no business setting."""
        title = "The page sent a value that is not allowed"
        if not isinstance(sync_data, dict):
            words = f"A state is an object with values of traits, got {type(sync_data).__name__}."
            self._show_error(title, words)
            return
        try:
            super().set_state({name: value for name, value in sync_data.items() if name in _WRITABLE})
        except traitlets.TraitError as error:
            self._show_error(title, error)

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        run_in_main_thread(lambda: self._answer(content), self._finish)

    def _answer(self, content: object) -> None:
        try:
            message, fields = parse_message(content)
        except MessageError as error:
            self._show_error("The page sent an unknown message", error)
            return
        busy = self._busy(message.doing) if message.is_slow else contextlib.nullcontext()
        with self._reporting(message.doing), busy:
            message.answer(self, **fields)

    def _finish(self) -> None:
        """Say that a message was answered, wherever an interrupt has ended that."""
        if self._shown_status["busy"]:
            self._show_busy(None)
        self.send({"type": "done"})

    @contextlib.contextmanager
    def _busy(self, words: str) -> Iterator[None]:
        try:
            self._show_busy(words)
            yield
        finally:
            self._show_busy(None)

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Iterator[None]:
        """Turn whatever goes wrong into words on the screen."""
        try:
            yield
        except KeyboardInterrupt:
            self._show_error("Interrupted", "The work was stopped. The switches show which passes are on.")
        except Exception as error:
            self._show_error(f"{doing} failed", error)

    def _show_error(self, title: str, error: BaseException | str) -> None:
        self._number_of_errors += 1
        text = error if isinstance(error, str) else describe_error(error)
        shown = {"number": self._number_of_errors, "title": title, "text": text}
        self._shown_status = self._shown_status | {"error": shown}

    def _show_busy(self, words: str | None) -> None:
        error = None if words else self._shown_status["error"]
        self._shown_status = {"busy": {"text": words, "step": 0} if words else None, "error": error}

    def _show_step(self, words: str, step: int) -> None:
        if self._shown_status["busy"]:
            self._shown_status = self._shown_status | {"busy": {"text": words, "step": step}}
