"""The widget below every screen: its traits synced with the page, its messages, errors in words."""

from __future__ import annotations

import contextlib
import json
import uuid
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fxlab.html_report.page import FrontEndMissingError, front_end_file
from fxlab.notebook.page.main_thread import is_beside_cells, run_in_main_thread
from fxlab.notebook.page.messages import MessageError, answers, parse_message, request_of
from fxlab.notebook.page.view_state import AT_FIRST, PANELS_AT_FIRST, checked_panels, checked_view
from fxlab.view_model.graph_data import GoneGraphError
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.wire import clip

LOWEST, HIGHEST = 240, 4000
"""Heights of the screen in CSS pixels."""

CODE_VERSION = front_end_file("built-from.txt").strip()


class PageCode(ipywidgets.Widget):  # type: ignore[misc]
    """The code of the page, its style sheet, and the code that lays graphs out."""

    code = traitlets.Unicode().tag(sync=True)
    css = traitlets.Unicode().tag(sync=True)
    worker = traitlets.Unicode().tag(sync=True)

    _shared: PageCode | None = None

    @classmethod
    def shared(cls) -> PageCode:
        """Return the one of this kernel; raises ``RuntimeError`` if there is no front end."""
        # ``Widget.close_all`` closes this one as well.
        if cls._shared is None or cls._shared.comm is None:
            files = {"code": "inspector.js", "css": "inspector.css", "worker": "layout_worker.js"}
            texts = {trait: front_end_file(name) for trait, name in files.items()}
            for trait, text in texts.items():
                if not text:
                    raise FrontEndMissingError(files[trait])
            cls._shared = cls(**texts)
        return cls._shared

    def set_state(self, sync_data: object) -> None:
        """Take nothing over: later inspectors run this code."""


_WRITABLE = frozenset({"height", "_shown_view", "_shown_panels"})
"""Traits that a page may set; everything else it asks for by messages."""


class _Shown(traitlets.Any):  # type: ignore[misc]
    """Part of what the page shows of the session: a widget that is behind catches up when it is read."""

    def get(self, obj: PageWidget, cls: type[Any] | None = None) -> Any:
        obj._catch_up_for_page()
        return super().get(obj, cls)


class _NotAllowedError(traitlets.TraitError, ValueError):  # type: ignore[misc]
    """A value that a trait cannot have: traitlets' own error undoes what a page has set."""


class _Height(traitlets.TraitType):  # type: ignore[misc]
    """CSS pixels, or ``None`` to follow the window."""

    def validate(self, obj: object, value: object) -> object:
        if value is None or (type(value) is int and LOWEST <= value <= HIGHEST):
            return value
        expected = f"expected None or a whole number of pixels from {LOWEST} to {HIGHEST}"
        raise _NotAllowedError(f"height: {expected}, got {clip(repr(value), 80)}.")


class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """A page that shows traits, and asks for everything else by messages."""

    # anywidget takes paths too, but then keeps every widget alive to tell it of changes of the file.
    _esm = front_end_file("loader.js")

    _code = traitlets.Instance(PageCode).tag(sync=True, **ipywidgets.widget_serialization)
    _code_version = traitlets.Unicode(CODE_VERSION).tag(sync=True)
    _static_name = traitlets.Unicode().tag(sync=True)
    """The name of the static element that stands in the place of the page until it is there."""
    _shown_data = _Shown().tag(sync=True)
    """The page's data of the graphs: compressed JSON, in the parts in which it was sent."""
    _shown_view = _Shown(AT_FIRST).tag(sync=True)
    _shown_passes = _Shown().tag(sync=True)
    _shown_tables = _Shown().tag(sync=True)
    _shown_stages = _Shown().tag(sync=True)
    _shown_overlays = _Shown().tag(sync=True)
    _shown_measured = _Shown().tag(sync=True)
    _shown_status = traitlets.Dict({"busy": None, "error": None}).tag(sync=True)
    _shown_panels = traitlets.Dict(PANELS_AT_FIRST).tag(sync=True)
    height = _Height(None, allow_none=True).tag(sync=True)

    def __init__(self, *, height: int | None) -> None:
        if not self._esm:
            raise FrontEndMissingError("loader.js")
        self._number_of_errors = 0
        self._unanswered: str | None = None
        self._shown_data = []
        # A page is opened with all of it: not every front end keeps messages for one that is opened later.
        self._refresh()
        super().__init__(height=height, _code=PageCode.shared(), _static_name=uuid.uuid4().hex)
        self.on_msg(self._receive)

    def _refresh(self) -> None:
        """Set the traits to the present state."""
        raise NotImplementedError

    def _catch_up(self) -> None:
        """Refresh if the session has changed since the last time."""
        raise NotImplementedError

    def _catch_up_for_page(self) -> None:
        # What a page gets beside a cell is older, and it asks again when it shows that.
        if not is_beside_cells():
            self._catch_up()

    def set_state(self, sync_data: object) -> None:
        """Take over the traits that a page may set, and no others."""
        title = "The page sent a value that is not allowed"
        if not isinstance(sync_data, dict):
            words = f"A state is an object with values of traits, got {type(sync_data).__name__}."
            self._show_error(title, words)
            return
        # Not within it: a value that is not allowed would undo the refresh as well.
        self._catch_up_for_page()
        try:
            super().set_state({name: value for name, value in sync_data.items() if name in _WRITABLE})
        except traitlets.TraitError as error:
            self._show_error(title, error)

    @traitlets.validate("_shown_view", "_shown_panels")  # type: ignore[untyped-decorator]
    def _check(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        checked = checked_view if proposal["trait"].name == "_shown_view" else checked_panels
        try:
            return checked(proposal["value"])
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None

    def _send_data(self, data: Mapping[str, Any], *, anew: bool) -> None:
        """Add to the page's data; ``anew`` takes the place of all that was sent before."""
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        part = zlib.compress(text.encode(), 1)
        # In place: a page that is opened later receives the trait, and other pages are not sent it again.
        if anew:
            self._shown_data.clear()
        self._shown_data.append(part)
        self.send({"type": "data", "number": len(self._shown_data) - 1}, buffers=[part])

    @answers("all-data", "Sending the graphs")
    def _send_all_data(self) -> None:
        for number, part in enumerate(self._shown_data):
            self.send({"type": "data", "number": number}, buffers=[part])

    @answers("page-code", "Sending the inspector")
    def _page_code(self) -> dict[str, str]:
        """Answer a page that cannot read the code that widgets share."""
        return {name: getattr(self._code, name) for name in ("code", "css", "worker")}

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        run_in_main_thread(lambda: self._answer(content), self._finish)

    def _answer(self, content: object) -> None:
        try:
            message, fields, self._unanswered = parse_message(content)
        except MessageError as error:
            self._unanswered = request_of(content)
            self._show_error("The page sent an unknown message", error)
            return
        busy = self._busy(message.doing) if message.is_slow else contextlib.nullcontext()
        late = contextlib.suppress(GoneGraphError)
        with self._reporting(message.doing), busy, late:
            self._catch_up()
            value = message.answer(self, **fields)
            self._catch_up()
            if self._unanswered is not None:
                is_file = isinstance(value, bytes)
                answer = {"type": "answer", "request": self._unanswered, "value": None if is_file else value}
                self.send(answer, buffers=[value] if is_file else None)
                self._unanswered = None

    def _finish(self) -> None:
        """Say that a message was answered, wherever an error or an interrupt has ended that."""
        if self._unanswered is not None:
            self.send({"type": "answer", "request": self._unanswered, "failed": True})
            self._unanswered = None
        if self._shown_status["busy"]:
            self._shown_status = self._shown_status | {"busy": None}
        self.send({"type": "done"})

    @contextlib.contextmanager
    def _busy(self, words: str, *, background: bool = False) -> Iterator[None]:
        try:
            error = self._shown_status["error"] if background else None
            self._shown_status = {"busy": {"text": words, "background": background}, "error": error}
            yield
        finally:
            self._shown_status = self._shown_status | {"busy": None}

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Iterator[None]:
        """Turn every error into words on the screen."""
        try:
            yield
        except KeyboardInterrupt:
            self._show_error("Interrupted", "The work was stopped. The switches show which passes are on.")
        except BaseException as error:  # SystemExit of a pass, say, would end the kernel
            self._show_error(f"{doing} failed", error)

    def _show_error(self, title: str, error: BaseException | str) -> None:
        self._number_of_errors += 1
        text = error if isinstance(error, str) else describe_error(error)
        shown = {"number": self._number_of_errors, "title": title, "text": text}
        self._shown_status = self._shown_status | {"error": shown}

    def _show_step(self, words: str) -> None:
        if busy := self._shown_status["busy"]:
            self._shown_status = self._shown_status | {"busy": busy | {"text": words}}
