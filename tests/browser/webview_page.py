"""A page that plays the one in which VS Code shows the outputs of a notebook; see ``webviews/host.js``."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from lab_page import LabPage

from hatch_build import install_packages, npm

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "webviews"
STATIC = (FOLDER, Path(sys.prefix, "share", "jupyter"))
"""What the pages are made of; the second has anywidget in ``nbextensions/``."""


def build_host() -> None:
    """Install VS Code's widget manager and bundle what plays its page; takes seconds, once."""
    install_packages(ROOT / "frontend")
    install_packages(FOLDER)
    npm(FOLDER, "run", "build")


class WebviewPage(LabPage):
    """A page beside a Jupyter server, in which cells are run and their widgets shown.

    Parameters
    ----------
    page
        The browser's page.
    url
        Where the Jupyter server listens, which serves ``STATIC``.
    """

    def open(self, name: str) -> None:
        """Open ``vscode.html``, ``colab.html``, or ``frame.html``, which has the latter in a frame."""
        self.page.goto(f"{self._url}/static/{name}")

    def run(self, code: str) -> None:
        """Run a cell, and show its widget in place of what was shown before."""
        self.page.evaluate("code => window.host.run(code)", code)

    def set_theme(self, name: str) -> None:
        """Change the theme of the running page, as in ``vscode-dark``."""
        self.page.evaluate("kind => window.host.setTheme(kind)", name)

    def told(self) -> Any:
        """Return what the page would have told VS Code, and forget it."""
        return self.page.evaluate(
            "() => { const { told } = window.host; const was = structuredClone(told);"
            " Object.assign(told, { keys: [], wheels: 0, files: [] }); return was; }"
        )

    def saved_file(self) -> tuple[str, bytes]:
        """Return the name and the content of the file that VS Code was told to save."""
        self.page.wait_for_function("() => window.host.told.files.length > 0")
        (file,) = self.told()["files"]
        return file["name"], base64.b64decode(file["data"].partition(",")[2])

    def interrupt(self) -> None:
        """Press the notebook's own stop button."""
        self.page.evaluate("() => window.host.interrupt()")

    def stop(self) -> None:
        """Stop the kernel."""
        self.page.evaluate("() => window.host.stop()")
