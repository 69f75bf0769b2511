"""Two stages of a session beside each other, with mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator

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
