"""The code that every inspector of a notebook runs in its page, sent once and not with each of them."""

from __future__ import annotations

import ipywidgets
import traitlets

from fxlab.html_report.page import FrontEndMissingError, front_end_file

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
