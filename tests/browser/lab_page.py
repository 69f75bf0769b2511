"""A notebook open in a browser, with the few gestures that the tests need."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image, ImageStat
from playwright.sync_api import Locator, Page, Request, expect

ARTIFACTS = Path(__file__).parent / "artifacts"
SLOW_MS = 300_000


class LabPage:
    """A page of JupyterLab.

    Parameters
    ----------
    page
        The browser's page.
    url
        Where JupyterLab listens.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self.requested_hosts: set[str] = set()
        self.page_errors: list[str] = []
        page.on("request", self._remember_host)
        page.on("pageerror", lambda error: self.page_errors.append(str(error)))
        page.set_default_timeout(30_000)

    def open(self, notebook: str) -> None:
        """Open a notebook in place of others, in the JupyterLab that the page shows if it shows one.

        Kernels go on, and a notebook that was open before has its own again.
        """
        if self.page.evaluate("() => Boolean(window.jupyterapp)"):
            self.page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach(e => e.dispose())")
            self.command("docmanager:open", path=notebook)
            self._wait_for_kernel()
        else:
            self.load(notebook)

    def load(self, notebook: str) -> None:
        """Load JupyterLab anew with a notebook, without the file browser beside it."""
        self.page.goto(f"{self._url}/lab/tree/{notebook}?reset")
        self._wait_for_kernel()
        if self.page.locator("#jp-left-stack:not(.lm-mod-hidden)").count():
            self.command("application:toggle-left-area")

    def _wait_for_kernel(self) -> None:
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=SLOW_MS)
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.connectionStatus"
            " === 'connected'",
            timeout=SLOW_MS,
        )
        self.wait_until_idle()

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, arguments]
        )

    def run_all(self) -> None:
        """Run all cells, without waiting for them."""
        # The promise of the command settles when the last cell is done; nobody waits for it here.
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")

    def set_theme(self, name: str) -> None:
        """Change the theme of the running page."""
        self.command("apputils:change-theme", theme=name)
        light = "false" if "Dark" in name else "true"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")

    def wait_until_idle(self, timeout: float = SLOW_MS) -> None:
        """Wait until the kernel has nothing left to do."""
        self.page.wait_for_selector(
            '.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=timeout, state="attached"
        )

    def inspector(self, number: int = 0) -> Locator:
        """Return one of the notebook's inspectors, scrolled into view, once its graph is drawn."""
        found = self.page.locator(".fxlab-inspector").nth(number)
        found.locator(".fxi-layer svg").first.wait_for(timeout=SLOW_MS)  # two, side by side
        found.scroll_into_view_if_needed()
        return found

    def settle(self, inspector: Locator) -> None:
        """Wait until the kernel has answered an inspector and its graph stands still."""
        expect(inspector).not_to_have_attribute("aria-busy", "true", timeout=SLOW_MS)
        self.page.wait_for_function(
            "() => !document.querySelector('.fxi-moving, .fxi-gliding')", timeout=10_000
        )

    def screenshot(self, name: str, of: Locator | None = None) -> Image.Image:
        """Keep a picture of an element or of the whole page, and return it."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        data = of.screenshot(path=path) if of is not None else self.page.screenshot(path=path)
        return Image.open(io.BytesIO(data))

    def brightness_by_theme(self, of: Locator, name: str) -> tuple[float, float]:
        """Return how bright an element is (0 to 255) in the light and in the dark theme; keep pictures."""
        found = []
        for theme in ("Light", "Dark"):
            self.set_theme(f"JupyterLab {theme}")
            self.settle(of)
            picture = self.screenshot(f"{name}{theme.lower()}", of)
            found.append(ImageStat.Stat(picture.convert("L")).mean[0])
        self.set_theme("JupyterLab Light")
        light, dark = found
        return light, dark

    def _remember_host(self, request: Request) -> None:
        scheme, _, rest = request.url.partition("://")
        if scheme in ("http", "https", "ws", "wss"):
            self.requested_hosts.add(rest.split("/")[0].rsplit(":", 1)[0])
