"""The inspector while its kernel is busy, when it is gone, and in a saved notebook that has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from blocks_page import MERGED_NODES, MODEL, NODES, box, has_nodes, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Browser, Locator, expect

pytestmark = pytest.mark.browser

SLEEP = "import time; time.sleep(120)"
SAVE_STATE = "@jupyter-widgets/jupyterlab-manager:plugin"


@pytest.fixture
def page(browser: Browser, lab: JupyterLab) -> Iterator[LabPage]:
    """A page of its own, whose kernel may be stopped."""
    context = browser.new_context(viewport={"width": 1600, "height": 1050})
    page = LabPage(context.new_page(), lab.url)
    yield page
    context.close()
    assert page.requested_hosts == {"127.0.0.1"}


def look_around(page: LabPage, inspector: Locator) -> None:
    """Open a group, select, search, filter and close it: all that asks nothing of the session."""
    has_nodes(inspector, NODES)
    inspector.scroll_into_view_if_needed()
    for name in ("Close opened groups", "Show all of the graph"):
        inspector.get_by_role("button", name=name).click()
        page.settle(inspector)
    details = inspector.get_by_role("region", name="Details")
    blocks = inspector.locator(".fxi-layer svg .fx-repeat")
    blocks.dblclick()
    expect(blocks).to_have_count(0)
    inner = inspector.locator(".fxi-layer svg .node.fx-group")
    expect(inner).to_have_count(4)
    box(inspector, "embedding").click()
    expect(details.get_by_role("heading", level=2)).to_have_text("embedding")
    expect(details).to_contain_text("torch.nn.modules.sparse.Embedding")

    search = inspector.get_by_role("combobox", name="Search")
    search.fill("linear key 2")
    inspector.locator(".fxi-results [role=option]").first.wait_for()
    search.press("Enter")
    expect(details.get_by_role("heading", level=2)).to_have_text("blocks_2_key")
    search.fill("upstream:blocks_2_key")
    search.press("Shift+Enter")
    expect(inspector.locator(".fxi-found-bar")).to_contain_text("nodes match upstream:blocks_2_key")
    inspector.get_by_role("button", name="Clear filter").click()
    page.settle(inspector)


def test_it_answers_while_a_cell_runs_and_after_the_kernel_is_gone(lab: JupyterLab, page: LabPage) -> None:
    lab.write("busy.ipynb", MODEL, SLEEP)
    page.load("busy.ipynb")
    page.run_all()
    inspector = page.inspector(0)
    look_around(page, inspector)
    switch(inspector, "Merge linears").click()
    # With subshells Jupyter may call a busy kernel idle; the page says what it knows.
    expect(inspector.locator(".fxi-busy")).to_contain_text(
        re.compile("Waiting for the kernel|The kernel is busy")
    )
    expect(inspector.locator(".fxi-pending")).to_have_count(1)

    page.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()"
    )
    expect(inspector.locator(".fxi-pending")).to_have_count(0, timeout=60_000)
    has_nodes(inspector, MERGED_NODES)
    page.settle(inspector)
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    inspector.get_by_role("button", name="Close opened groups").click()
    page.settle(inspector)

    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    expect(inspector.get_by_role("alert")).to_contain_text("The kernel has stopped", timeout=2_000)
    look_around(page, inspector)
    picture, error = page.page.get_by_alt_text("The graph"), page.page.get_by_text("model not found")
    expect(picture).to_be_hidden()
    page.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.page.wait_for_timeout(1000)
    page.load("busy.ipynb")
    expect(picture).to_be_visible()
    expect(error).to_be_attached()
    expect(error).to_be_hidden()


@pytest.mark.weekly
def test_a_saved_notebook_is_alive_where_widgets_are_and_a_picture_elsewhere(
    lab: JupyterLab, page: LabPage
) -> None:
    lab.write("saved.ipynb", MODEL)
    page.load("saved.ipynb")
    page.page.evaluate(
        "([plugin, raw]) => window.jupyterapp.serviceManager.settings.save(plugin, raw)",
        [SAVE_STATE, '{"saveState": true}'],
    )
    page.page.reload()
    page.load("saved.ipynb")
    page.run_all()
    inspector = page.inspector(0)
    page.settle(inspector)
    look_around(page, inspector)
    inspector.get_by_role("button", name="Close opened groups").click()
    page.page.wait_for_timeout(1000)
    page.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.page.wait_for_timeout(3000)
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    written = json.loads((lab.notebooks / "saved.ipynb").read_text())
    (cell,) = written["cells"]
    assert "No pass is on" in str(cell["outputs"][0]["data"]["text/html"])

    page.load("saved.ipynb")
    look_around(page, page.inspector(0))


@pytest.mark.weekly
def test_where_the_browser_runs_no_workers_the_kernel_lays_graphs_out(lab: JupyterLab, page: LabPage) -> None:
    # JupyterLab's own workers come from addresses; the inspector's is made of a text.
    page.page.add_init_script(
        """const Own = Worker;
        window.Worker = class extends Own {
            constructor(url, options) {
                if (String(url).startsWith("blob:")) throw new Error("no workers here");
                super(url, options);
            }
        };"""
    )
    lab.write("without_workers.ipynb", MODEL)
    page.load("without_workers.ipynb")
    page.run_all()
    look_around(page, page.inspector(0))
