"""Two stages of a session beside each other, with mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from blocks_page import box, open_blocks, put_back, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    return open_blocks(lab, lab_page)


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    """An inspector with one pass on, which shows the original beside the last stage."""
    found = page.inspector(0)
    page.settle(found)
    switch(found, "Merge linears").click()
    page.settle(found)
    found.get_by_role("button", name="Side by side").click()
    page.settle(found)
    yield found
    put_back(page, found)


def before(inspector: Locator) -> Locator:
    return inspector.get_by_role("group", name="Original", exact=True)


def after(inspector: Locator) -> Locator:
    return inspector.get_by_role("group", name="1. Merge linears", exact=True)


def details(inspector: Locator) -> Locator:
    return inspector.get_by_role("region", name="Details").get_by_role("heading", level=2)


def find(page: LabPage, inspector: Locator, name: str) -> None:
    """Select a node by searching for its name."""
    inspector.get_by_role("combobox", name="Search").fill(name)
    inspector.get_by_role("option").filter(has=page.page.get_by_text(name, exact=True)).click()
    page.settle(inspector)


def test_each_side_shows_its_stage_with_what_became_of_its_nodes(page: LabPage, inspector: Locator) -> None:
    for side, sign in ((before(inspector), "+"), (after(inspector), "\N{MINUS SIGN}")):
        expect(side.locator(".fxi-layer svg")).to_be_visible()
        expect(side.locator(".fxi-flag text").filter(has_text=sign)).to_have_count(0)
        expect(side.locator(".fxi-flag text").filter(has_text="≠").first).to_be_attached()
    expect(box(before(inspector), "query_key_merged")).to_have_count(0)
    expect(box(after(inspector), "query_key_merged").first).to_be_attached()


def expect_one_scale(root: Locator, before: Locator, after: Locator, merged: Locator) -> None:
    """Expect a merged linear, which is selected, to be as warm as the two that it was made of together."""
    for side in (before, after):
        expect(side.locator(".fxi-layer svg .node.fxi-heat").first).to_be_visible()
    heat = "element => Number(element.style.getPropertyValue('--heat'))"
    whole = merged.and_(root.locator(".fxi-selected")).evaluate(heat)
    parts = before.locator(".node.fxi-selected")
    expect(parts).to_have_count(2)
    assert [parts.nth(i).evaluate(heat) for i in range(2)] == [pytest.approx(whole / 2, abs=0.001)] * 2
    expect(root.locator(".fxi-scale")).to_have_count(1)
    parts.first.hover()
    expect(before.get_by_role("tooltip")).to_contain_text("Parameters: 72 (")


def test_both_are_coloured_on_one_scale_with_one_legend(page: LabPage, inspector: Locator) -> None:
    inspector.get_by_text("Legend").click()
    inspector.get_by_role("combobox", name="Colour by").select_option("parameters")
    page.settle(inspector)
    find(page, inspector, "query_key_merged_2")
    expect_one_scale(
        inspector, before(inspector), after(inspector), box(after(inspector), "query_key_merged")
    )
    inspector.get_by_text("Export", exact=True).click()
    with page.page.expect_download() as download:
        inspector.get_by_role("button", name="SVG picture").click()
    saved = ElementTree.fromstring(download.value.path().read_text(encoding="utf-8"))
    words = [text.text for text in saved.findall(".//{*}text")]
    assert {"Original", "1. Merge linears", "key", "query_key_merged"} <= {*words}
    assert words.count("Parameters") == 1
    inspector.get_by_text("Legend").click()
    inspector.get_by_role("combobox", name="Colour by").select_option("")
    page.settle(inspector)
    expect(inspector.locator(".fxi-layer svg .fxi-heat")).to_have_count(0)


def test_both_sides_are_walked_through_with_the_keyboard(page: LabPage, inspector: Locator) -> None:
    keyboard = page.page.keyboard
    find(page, inspector, "query_key_merged_1")
    graphs = [side.get_by_role("application") for side in (before(inspector), after(inspector))]
    graphs[1].focus()
    keyboard.press("o")
    expect(graphs[0]).to_be_focused()
    keyboard.press("ArrowDown")
    page.settle(inspector)
    expect(details(inspector)).to_have_text("mul_1")
    expect(before(inspector).locator(".fxi-selected")).not_to_have_count(0)
    keyboard.press("o")
    expect(graphs[1]).to_be_focused()
    scales = [graph.get_attribute("data-scale") or "" for graph in graphs]
    together = inspector.get_by_role("button", name="Move together")
    expect(together).to_have_attribute("aria-pressed", "true")
    keyboard.press("l")
    expect(together).to_have_attribute("aria-pressed", "false")
    keyboard.press("+")
    expect(graphs[1]).not_to_have_attribute("data-scale", scales[1])
    expect(graphs[0]).to_have_attribute("data-scale", scales[0])
    keyboard.press("l")
    expect(graphs[0]).not_to_have_attribute("data-scale", scales[0])
    expect(graphs[0]).to_have_attribute("data-scale", graphs[1].get_attribute("data-scale") or "")
    keyboard.press("Escape")
    page.settle(inspector)
    expect(inspector.locator(".fxi-layer .fxi-selected")).to_have_count(0)


def test_a_group_opens_and_closes_on_both_sides(page: LabPage, inspector: Locator) -> None:
    sides = (before(inspector), after(inspector))
    inspector.get_by_role("button", name="Close opened groups").click()
    page.settle(inspector)
    closed = [side.locator(".fxi-layer svg .node").count() for side in sides]
    find(page, inspector, "query_key_merged")
    for side, count in zip(sides, closed, strict=True):
        assert side.locator(".fxi-layer svg .node").count() > count
    frame = sides[0].locator(".fxi-cluster-label").filter(has_text="blocks.0").first
    frame.dblclick()
    page.settle(inspector)
    for side in sides:
        expect(side.locator(".fxi-cluster-label").filter(has_text="blocks.0")).to_have_count(0)


def test_the_border_between_them_is_moved(page: LabPage, inspector: Locator) -> None:
    border = inspector.get_by_role("separator", name="Border between two stages")
    width = before(inspector).bounding_box()
    border.focus()
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowLeft")
    narrower = before(inspector).bounding_box()
    assert width is not None
    assert narrower is not None
    assert width["width"] - narrower["width"] == pytest.approx(48, abs=2)


def test_one_is_left_when_the_pass_is_switched_off_or_one_graph_is_asked_for(
    page: LabPage, inspector: Locator
) -> None:
    find(page, inspector, "query_key_merged_2")
    inspector.get_by_role("button", name="One graph").click()
    page.settle(inspector)
    expect(inspector.get_by_role("application")).to_have_count(1)
    expect(inspector.locator(".fxi-flag text").filter(has_text="+").first).to_be_attached()
    inspector.get_by_role("button", name="Side by side").click()
    page.settle(inspector)
    expect(inspector.get_by_role("application")).to_have_count(2)
    before(inspector).get_by_role("application").focus()
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    expect(inspector.get_by_role("application")).to_have_count(1)
    expect(inspector.get_by_role("alert")).to_be_hidden()
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    expect(inspector.get_by_role("application")).to_have_count(1)
