"""A report: its panels, and links that restore a view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from accessibility import violations
from blocks_page import cut_off
from playwright.sync_api import Browser, Page, expect
from report_page import box, checked, details_title, make_session, opened, settle, show_table

import fxlab

pytestmark = pytest.mark.browser

VIEW = "stage=1&compare=0&open=blocks.0&query=op%3Acall_module&colours=parameters&node=embedding"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fxlab.report(make_session(), path=tmp_path_factory.mktemp("report") / "blocks.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report; afterwards it must have asked for nothing but itself and its worker."""
    with checked(opened(browser, file)) as page:
        yield page


def follow_link(page: Page, file: Path, fragment: str) -> None:
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#{fragment}")
    page.wait_for_selector(".fxi-layer svg")
    settle(page)


def test_a_link_restores_the_view(page: Page, file: Path) -> None:
    follow_link(page, file, VIEW)
    expect(page.get_by_role("combobox", name="Stage of the graph")).to_have_value("1")
    expect(page.get_by_role("combobox", name="Compare with")).to_have_value("0")
    expect(page.get_by_role("combobox", name="Colour by")).to_have_value("parameters")
    expect(page.locator(".fxi-found-bar")).to_contain_text("op:call_module")
    expect(details_title(page)).to_have_text("embedding")
    expect(box(page, "blocks.0")).to_have_count(1)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_the_address_is_a_link_to_what_is_shown(page: Page, file: Path) -> None:
    settle(page)
    assert page.url == file.as_uri()
    page.get_by_role("combobox", name="Stage of the graph").select_option("1")
    settle(page)
    page.get_by_role("combobox", name="Colour by").select_option("dtype")
    settle(page)
    page.locator(".fxi-layer svg .node.fx-op").first.click()
    settle(page)
    title, shown = details_title(page).inner_text(), page.locator(".fxi-layer svg .node").count()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_text("Export", exact=True).click()
    page.get_by_role("button", name="Copy link to this view").click()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    follow_link(page, file, link.partition("#")[2])
    expect(page.get_by_role("combobox", name="Colour by")).to_have_value("dtype")
    expect(details_title(page)).to_have_text(title)
    expect(page.locator(".fxi-layer svg .node")).to_have_count(shown)
    assert page.url == link


@pytest.mark.parametrize(
    "width", [320, *(pytest.param(width, marks=pytest.mark.weekly) for width in (480, 760))]
)
def test_narrow_windows_are_usable(browser: Browser, file: Path, width: int) -> None:
    page = opened(browser, file)
    page.set_viewport_size({"width": width, "height": 720})
    page.get_by_role("button", name="Tables panel").click()
    page.wait_for_timeout(300)
    graph = page.locator(".fxi-graph").bounding_box()
    assert graph is not None
    assert graph["height"] > 300
    assert cut_off(page.locator(".fxlab-inspector")) == []
    assert violations(page, "html") == []
    passes = page.get_by_role("button", name="Passes panel")
    if passes.get_attribute("aria-expanded") == "false":
        passes.click()
    expect(page.get_by_role("switch", name="Merge linears")).to_be_visible()
    passes.click()
    show_table(page, "Details")
    expect(page.get_by_role("tabpanel")).to_contain_text("Blocks")
    assert violations(page, "html") == []
    assert cut_off(page.locator(".fxlab-inspector")) == []
    page.context.close()


def test_the_values_of_a_changed_node_are_written_and_drawn(browser: Browser, tmp_path: Path) -> None:
    session = make_session()
    node = str(fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).index[0])
    with checked(opened(browser, fxlab.report(session, path=tmp_path / "values.html", values=True))) as page:
        follow_link(page, tmp_path / "values.html", f"stage={len(session.applied)}&node={node}")
        drawn = page.locator(".fxi-map canvas").first
        expect(drawn).to_be_visible()
        settle(page)
        pixels = "canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
        assert len(set(drawn.evaluate(pixels))) > 3  # black has two numbers
