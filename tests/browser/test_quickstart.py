"""The quickstart as a person uses it: in JupyterLab, with the mouse."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

MERGED = "query_key_value_merged"


@pytest.fixture(scope="module")
def page(lab_page: LabPage) -> LabPage:
    """The quickstart after all of its cells have run."""
    lab_page.open("quickstart.ipynb")
    lab_page.run_all()
    lab_page.inspector(1)
    lab_page.wait_until_idle()
    told = lab_page.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').all_inner_texts()
    assert not [text for text in told if "No CUDA runtime is found" not in text]
    return lab_page


@pytest.fixture
def bert(page: LabPage) -> Iterator[Locator]:
    """The first inspector, with all passes off."""
    inspector = page.inspector(0)
    page.settle(inspector)
    yield inspector
    reset = inspector.get_by_role("button", name="Switch all passes off")
    if reset.is_enabled():
        reset.click()
        page.settle(inspector)


def switch(inspector: Locator, name: str) -> Locator:
    return inspector.get_by_role("switch", name=name)


def test_a_pass_is_switched_on_seen_and_switched_off_again(page: LabPage, bert: Locator) -> None:
    marked = bert.locator(".fxi-layer svg .fx-changed")
    nodes = bert.locator(".fxi-header").get_by_text("350 nodes")
    expect(nodes).to_be_visible()
    expect(marked).to_have_count(0)

    switch(bert, "Merge linears").click()
    expect(switch(bert, "Merge linears")).to_have_attribute("aria-checked", "true")
    page.settle(bert)
    expect(nodes).to_have_count(0)
    assert marked.count() > 0
    expect(bert.locator(".fxi-layer svg")).to_contain_text(MERGED)
    expect(bert.locator(".fxi-card").get_by_text("12 rewrites: 36 linears become 12")).to_be_visible()
    expect(bert.get_by_role("row").filter(has_text="last_hidden_state")).to_contain_text("float32")

    bert.get_by_role("tab", name="Changed nodes").click()
    expect(bert.get_by_role("row").filter(has_text=MERGED)).to_have_count(12)

    switch(bert, "Merge linears").click()
    expect(switch(bert, "Merge linears")).to_have_attribute("aria-checked", "false")
    page.settle(bert)
    expect(nodes).to_be_visible()
    expect(marked).to_have_count(0)
    expect(bert.locator(".fxi-layer svg")).not_to_contain_text(MERGED)


def test_the_pass_that_the_notebook_applied_shows_in_its_inspector(page: LabPage) -> None:
    resnet = page.inspector(1)
    page.settle(resnet)
    expect(switch(resnet, "Fuse batch norm2d in conv2d")).to_have_attribute("aria-checked", "false")
    expect(switch(resnet, "Torch fuse")).to_have_attribute("aria-checked", "true")
    fused = re.compile("53 convs, 53 batch norms and 81 other nodes (→|become) 53 convs, 1 size and 1 output")
    expect(resnet.locator(".fxi-card").get_by_text(fused)).to_be_visible()


def test_the_pass_that_the_notebook_names_is_in_sight_on_a_small_screen(page: LabPage, bert: Locator) -> None:
    size = page.page.viewport_size
    page.page.set_viewport_size({"width": 1280, "height": 800})
    try:
        bert.scroll_into_view_if_needed()
        expect(bert).to_contain_text("can change this model")
        cards = bert.locator(".fxi-cards")
        # As it is at first: the notebook has brought passes into sight that it added below.
        cards.evaluate("list => list.scrollTo(0, 0)")
        expect(switch(bert, "Merge linears")).to_be_in_viewport(ratio=1)
        lies_above = "(list, name) => [...list.querySelectorAll('[role=switch]')]"
        lies_above += ".find(e => e.ariaLabel === name).getBoundingClientRect().bottom"
        lies_above += " <= list.getBoundingClientRect().bottom"
        assert cards.evaluate(lies_above, "Merge linears"), "without scrolling the list"
    finally:
        assert size is not None
        page.page.set_viewport_size(size)
