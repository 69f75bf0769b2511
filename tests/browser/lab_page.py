"""A notebook open in a browser, with the few gestures that the tests need."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, Request, expect

SLOW_MS = 300_000
EMPTY = "from ipywidgets import Widget; Widget.close_all(); get_ipython().reset()"
EMPTIED = """async code => {
    const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
    await kernel.requestExecute({ code, store_history: false }).done;
    return kernel.model;
}"""


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

        It has the kernel of the one before, without its names and widgets: a new one takes seconds to
        import torch.
        """
        if self.page.evaluate("() => Boolean(window.jupyterapp)"):
            kernel = self.page.evaluate(EMPTIED, EMPTY)
            self.page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach(e => e.dispose())")
            self.command("docmanager:open", path=notebook, kernel=kernel)
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

    def _remember_host(self, request: Request) -> None:
        scheme, _, rest = request.url.partition("://")
        if scheme in ("http", "https", "ws", "wss"):
            self.requested_hosts.add(rest.split("/")[0].rsplit(":", 1)[0])
