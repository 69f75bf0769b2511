"""The same inspector in Notebook 7 and in marimo: it opens, a pass is switched, a node is clicked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import nbformat
import pytest
from jupyter_lab import JupyterLab
from lab_page import ARTIFACTS
from local_server import LocalServer, free_port
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = pytest.mark.browser

START_MS = 90_000
MODEL = """
import torch
from torch import fx, nn

import fxlab


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.query(x) * self.key(x)


fxlab.inspect(fxlab.Session(fx.symbolic_trace(nn.Sequential(Block(), nn.Tanh())), (torch.ones(2, 8),)))
"""
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
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "2"}
    environment |= {
        name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    }
    command = [
        sys.executable, "-m", "marimo", "--quiet", "run", str(notebook),
        "--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with LocalServer(command, environment, port, "/health", folder / "marimo.log") as server:
        yield server


def settle(inspector: Locator) -> None:
    expect(inspector).not_to_have_attribute("aria-busy", "true", timeout=START_MS)
    expect(inspector.locator(".fxi-moving, .fxi-gliding")).to_have_count(0)


def use(page: Page, name: str) -> None:
    """Do with the first inspector of a page what most people do first."""
    inspector = page.locator(".fxlab-inspector")
    inspector.locator(".fxi-layer svg").wait_for(timeout=START_MS)
    inspector.scroll_into_view_if_needed()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    title = inspector.get_by_role("region", name="Details").get_by_role("heading", level=2)
    expect(title).to_have_text("Sequential")

    switch = inspector.get_by_role("switch", name="Merge linears")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    settle(inspector)
    expect(inspector.locator(".fxi-layer svg .node.fx-op.fxi-lit")).to_have_count(1)
    expect(inspector.locator(".fxi-verdict").first).to_contain_text("Outputs")

    inspector.locator(".fxi-layer svg .node.fx-op.fxi-lit").click()
    expect(title).to_have_text("query_key_merged")
    inspector.locator(".fxi-graph").press("ArrowDown")
    expect(title).not_to_have_text("query_key_merged")

    percent = inspector.locator(".fxi-percent")
    before = percent.inner_text()
    inspector.locator(".fxi-graph").hover()
    page.wait_for_timeout(300)  # a wheel that turned elsewhere just before would not zoom
    page.mouse.wheel(0, -240)
    expect(percent).not_to_have_text(before)
    settle(inspector)
    assert errors == []
    ARTIFACTS.mkdir(exist_ok=True)
    inspector.screenshot(path=ARTIFACTS / f"{name}.png")


def test_it_works_in_notebook_7(lab: JupyterLab, page: Page) -> None:
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cell = nbformat.v4.new_code_cell(MODEL)
    nbformat.write(
        nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": python}),
        lab.notebooks / "classic.ipynb",
    )
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
    use(page, "notebook-7")


def test_it_works_in_marimo(marimo: LocalServer, page: Page) -> None:
    page.goto(marimo.url)
    use(page, "marimo")
