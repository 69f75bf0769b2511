"""The generated code of a graph beside it, in a report and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accessibility import violations
from blocks_page import open_blocks, put_back, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Browser, Locator, Page, expect
from report_page import HOSTILE, checked, details_title, make_session, opened, settle, show_table
from torch import nn

import fxlab

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def session() -> fxlab.Session:
    return make_session()


@pytest.fixture(scope="module")
def file(session: fxlab.Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fxlab.report(session, path=tmp_path_factory.mktemp("report") / "code.html", measure=False)


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report with the code open; afterwards it must have asked for nothing but itself."""
    with checked(opened(browser, file)) as page:
        page.get_by_role("tab", name="Code", exact=True).click()
        settle(page)
        yield page


class Either(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() / 3, lambda x: x / 7, (x,))


def line(within: Page | Locator, text: str) -> Locator:
    return within.locator(".fxi-code-cell").filter(has_text=text)


def compare(page: Page, with_: str) -> None:
    page.get_by_label("Compare with").select_option(label=with_)
    settle(page)


def test_the_code_is_what_torch_has_generated_and_its_lines_lead_to_nodes(
    page: Page, session: fxlab.Session
) -> None:
    lines = session.graph_module.code.strip("\n").rstrip().splitlines()
    assert page.locator(".fxi-code-cell").all_text_contents() == lines
    line(page, "embedding = self.embedding(tokens)").click()
    settle(page)
    expect(details_title(page)).to_have_text("embedding")
    expect(page.locator(".fxi-code-selected")).to_have_count(1)
    assert page.evaluate("typeof hacked") == "undefined"
    assert any(HOSTILE.partition("\u202e")[0] in text for text in lines)


def test_two_stages_are_compared_side_by_side_and_one_below_the_other(page: Page) -> None:
    compare(page, "vs. 0. Original")
    expect(page.locator(".fxi-code-bar")).to_contain_text("Original → 2.")
    expect(line(page, "* 0.3333333333333333").first.locator("ins mark").first).to_be_visible()
    pairs = page.locator(".fxi-code-row:has(.fxi-code-removed):has(.fxi-code-added)")
    assert pairs.count() > 0
    boxes = pairs.first.locator(".fxi-code-cell").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(({ x, y }) => [x, y])"
    )
    assert boxes[0][1] == boxes[1][1]
    assert boxes[0][0] < boxes[1][0]
    assert violations(page, ".fxlab-inspector") == []

    page.get_by_role("button", name="Unified").click()
    expect(pairs).to_have_count(0)
    assert violations(page, ".fxlab-inspector") == []
    removed = page.locator(".fxi-code-removed").first
    removed.click()
    settle(page)
    expect(details_title(page)).not_to_have_text("Blocks")


@pytest.mark.parametrize(
    "width", [320, *(pytest.param(width, marks=pytest.mark.weekly) for width in (800, 1920))]
)
def test_at_any_width_lines_are_wrapped_and_nothing_is_cut_off(
    browser: Browser, file: Path, width: int
) -> None:
    with checked(opened(browser, file)) as page:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        show_table(page, "Code")
        settle(page)
        compare(page, "vs. 0. Original")
        expect(page.get_by_role("button", name="Unified")).to_have_count(1 if width > 1300 else 0)
        grid = page.get_by_role("grid", name="Generated code")
        assert grid.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
        assert violations(page, ".fxi-code-panel") == []


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    return open_blocks(lab, lab_page)


def test_in_a_notebook_the_code_comes_when_its_tab_is_opened_and_follows_the_switches(
    notebook: LabPage,
) -> None:
    inspector = notebook.inspector(0)
    notebook.settle(inspector)
    expect(inspector.locator(".fxi-code-cell")).to_have_count(0)
    inspector.get_by_role("tab", name="Code", exact=True).click()
    notebook.settle(inspector)
    expect(inspector.locator(".fxi-code-cell").first).to_contain_text("def forward(self, ")
    before = inspector.locator(".fxi-code-cell").count()
    switch(inspector, "Merge linears").click()
    notebook.settle(inspector)
    expect(line(inspector, "query_key_merged").first).to_be_attached()
    assert inspector.locator(".fxi-code-cell").count() != before
    assert violations(notebook.page, ".fxi-code-panel") == []
    inspector.get_by_role("tab", name="Output differences").click()
    put_back(notebook, inspector)
