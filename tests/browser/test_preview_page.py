"""What a pass would do, seen before it is applied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blocks_page import MERGED_NODES, NODES, box, has_nodes, is_on, open_blocks, put_back
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

WORDS = "Preview of Merge linears: 4 rewrites: 8 linears become 4, nothing is applied"


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    return open_blocks(lab, lab_page)


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    """An inspector with all passes off, and afterwards without a preview."""
    found = page.inspector(0)
    page.settle(found)
    yield found
    if banner(found).is_visible():
        found.get_by_role("button", name="Cancel").click()
        page.settle(found)
    put_back(page, found)


def banner(inspector: Locator) -> Locator:
    return inspector.get_by_role("group", name="Preview", exact=True)


def button(inspector: Locator, name: str) -> Locator:
    return inspector.get_by_role("button", name=f"Preview {name}")


def preview(page: LabPage, inspector: Locator, name: str = "Merge linears") -> None:
    button(inspector, name).click()
    page.settle(inspector)


def test_a_preview_shows_what_would_be_done_and_switches_nothing(page: LabPage, inspector: Locator) -> None:
    preview(page, inspector)
    expect(banner(inspector).get_by_role("status")).to_have_text(WORDS)
    expect(button(inspector, "Merge linears")).to_have_attribute("aria-pressed", "true")
    merged = box(inspector, "query_key_merged").first
    expect(merged).to_be_in_viewport()
    assert merged.locator(".fx-shape").evaluate("e => getComputedStyle(e).strokeDasharray") != "none"
    merged.hover()
    expect(inspector.locator(".fxi-tooltip")).to_contain_text("Would be added")
    has_nodes(inspector, MERGED_NODES)
    is_on(inspector, "Merge linears", False)
    expect(inspector.get_by_role("button", name="Undo")).to_be_disabled()
    expect(inspector).to_contain_text("No pass is on")


def test_a_preview_is_applied_or_left_with_the_keyboard(page: LabPage, inspector: Locator) -> None:
    keyboard = page.page.keyboard
    button(inspector, "Merge linears").focus()
    keyboard.press("Enter")
    page.settle(inspector)
    expect(banner(inspector)).to_be_visible()
    expect(button(inspector, "Merge linears")).to_be_focused()
    keyboard.press("Escape")
    page.settle(inspector)
    expect(banner(inspector)).to_be_hidden()
    expect(inspector.locator(".fxi-layer .fx-changed")).to_have_count(0)
    expect(button(inspector, "Merge linears")).to_be_focused()

    keyboard.press("Enter")
    page.settle(inspector)
    inspector.get_by_role("application").focus()
    keyboard.press("Escape")
    page.settle(inspector)
    expect(banner(inspector)).to_be_hidden()

    preview(page, inspector)
    banner(inspector).get_by_role("button", name="Apply").focus()
    keyboard.press("Enter")
    page.settle(inspector)
    expect(banner(inspector)).to_be_hidden()
    is_on(inspector, "Merge linears", True)
    has_nodes(inspector, MERGED_NODES)
    expect(button(inspector, "Merge linears")).to_have_count(0)
    expect(inspector.get_by_role("button", name="Merge linears", exact=True)).to_be_focused()
    inspector.get_by_role("button", name="Undo").click()
    page.settle(inspector)
    is_on(inspector, "Merge linears", False)
    has_nodes(inspector, NODES)
