"""A report on several compiled graphs in a browser: a list of them, and each by its tab or address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accessibility import violations
from playwright.sync_api import Browser, Page, expect
from report_page import HOSTILE, checked, settle

import fxlab
from fxlab.html_report.report import report_several

# torch's compiler imports what torch deprecates.
pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x) + 1
    print("<img src=x onerror='hacked = 1'>")
    return torch.sigmoid(y)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        torch.compile(breaks, backend="eager")(torch.randn(2, 3))
    path = tmp_path_factory.mktemp("report") / "compile.html"
    return report_several(record.sessions, path, title=HOSTILE, notes=[HOSTILE], measure=False)


@pytest.fixture(params=[pytest.param("light", marks=pytest.mark.weekly), "dark"])
def page(browser: Browser, file: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1400, "height": 850}, offline=True, color_scheme=request.param
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.requested, page.problems = [], []  # type: ignore[attr-defined]
    page.on("request", lambda request: page.requested.append(request.url))  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.problems.append(str(error)))  # type: ignore[attr-defined]
    page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))  # type: ignore[attr-defined]
    page.goto(file.as_uri())
    with checked(page):
        yield page


def test_the_list_leads_to_each_graph_and_back(page: Page) -> None:
    tabs = page.get_by_role("navigation", name="Graphs")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("test_several_graphs_page.py:")
    expect(row).to_contain_text("""print("<img src=x onerror='hacked = 1'>")""")
    assert violations(page, "body") == []
    page.get_by_role("table").get_by_role("link", name="graph 1, inference").click()
    page.wait_for_selector(".fxi-layer svg")
    settle(page)
    expect(tabs.locator("[aria-current]")).to_have_text("graph 1, inference")
    page.get_by_text("A graph break ends this graph: 1 remark").click()
    expect(page.get_by_text("Graph break: ", exact=False).first).to_be_visible()
    tabs.get_by_text("graph 2, inference").click()
    expect(page.get_by_text("A graph break ends this graph")).to_have_count(0)
    expect(page.get_by_role("region", name="fxlab inspector")).to_have_count(1)
    page.go_back()
    expect(tabs.locator("[aria-current]")).to_have_text("graph 1, inference")
    assert page.evaluate("() => typeof hacked") == "undefined"


def test_a_link_to_a_view_of_a_graph_restores_it(page: Page, file: Path) -> None:
    page.goto(f"{file.as_uri()}#graph=2&node=sigmoid")
    page.reload()
    page.wait_for_selector(".fxi-layer svg")
    settle(page)
    expect(page.get_by_role("region", name="Details").get_by_role("heading", level=2)).to_have_text("sigmoid")
    page.get_by_role("navigation", name="Graphs").get_by_text("Overview").click()
    expect(page.get_by_role("table")).to_be_visible()
    page.get_by_role("navigation", name="Graphs").get_by_text("graph 2, inference").click()
    expect(page.get_by_role("region", name="Details").get_by_role("heading", level=2)).to_have_text("sigmoid")
