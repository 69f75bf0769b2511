"""The same inspector in Notebook 7 and in marimo: it opens, a pass is switched, a node is clicked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest
from first_steps import MODEL, START_MS, use
from jupyter_lab import JupyterLab
from local_server import LocalServer, free_port
from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.weekly]

MARIMO_NOTEBOOK = f"""
import marimo

app = marimo.App(width="full")


@app.cell
def _():
{indent(MODEL, "    ")}
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; afterwards it must have asked no host but this one."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    page = context.new_page()
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2].partition(":")[0]))
    page.set_default_timeout(30_000)
    yield page
    context.close()
    assert hosts - {""} == {"127.0.0.1"}


@pytest.fixture(scope="module")
def marimo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A marimo that serves one notebook as an app; cells run when it is opened."""
    folder, port = tmp_path_factory.mktemp("marimo"), free_port()
    notebook = folder / "notebook.py"
    notebook.write_text(MARIMO_NOTEBOOK)
    source = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    environment |= {
        name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    }
    command = [
        sys.executable, "-m", "marimo", "--quiet", "run", str(notebook),
        "--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with LocalServer(command, environment, port, "/health", folder / "marimo.log") as server:
        yield server


def test_it_works_in_notebook_7(lab: JupyterLab, page: Page) -> None:
    lab.write("classic.ipynb", MODEL)
    with page.expect_websocket(lambda socket: "/channels" in socket.url, timeout=START_MS):
        page.goto(f"{lab.url}/notebooks/classic.ipynb")
    page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(state="attached")
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first
    for _ in range(20):  # until the kernel has said hello a cell is not run
        page.locator(".jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(1000)
        if prompt.inner_text() != "[ ]:":
            break
    use(page)


def test_it_works_in_marimo(marimo: LocalServer, page: Page) -> None:
    page.goto(marimo.url)
    use(page)
