"""How much of the inspector is graph in a JupyterLab, and what folds, opens and fills the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from accessibility import violations
from blocks_page import box, open_blocks, put_back, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

SHARE = """root => {
    const { width, height } = root.getBoundingClientRect();
    const graph = root.querySelector(".fxi-graph").getBoundingClientRect();
    return graph.width * graph.height / (width * height);
}"""
FILLS = """root => {
    const { left, top, width, height } = root.getBoundingClientRect();
    return left === 0 && top === 0 && width === innerWidth && height === innerHeight;
}"""

COLOURS = """canvas => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return [new Set(new Uint32Array(data.buffer)).size, data.slice(0, 3).join()];
}"""


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    lab_page.page.set_viewport_size({"width": 1440, "height": 900})
    return open_blocks(lab, lab_page)


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    """The first of them, as it was opened."""
    page.page.set_viewport_size({"width": 1440, "height": 900})
    found = page.inspector(0)
    page.settle(found)
    yield found
    put_back(page, found)
    for name, expanded in (("Passes", "true"), ("Tables", "false")):
        panel = panel_button(found, name)
        if panel.get_attribute("aria-expanded") != expanded:
            panel.click()


def panel_button(inspector: Locator, name: str) -> Locator:
    return inspector.get_by_role("button", name=f"{name} panel")


def resize(page: LabPage, inspector: Locator, width: int, height: int) -> None:
    page.page.set_viewport_size({"width": width, "height": height})
    page.page.wait_for_timeout(400)
    inspector.scroll_into_view_if_needed()


@pytest.mark.parametrize(
    ("width", "height"),
    [(1280, 800), *(pytest.param(*size, marks=pytest.mark.weekly) for size in ((1440, 900), (1920, 1080)))],
)
def test_most_of_it_is_graph_when_it_is_opened(
    page: LabPage, inspector: Locator, width: int, height: int
) -> None:
    resize(page, inspector, width, height)
    assert inspector.evaluate(SHARE) >= 0.6
    for name in ("Merge linears", "Breaks"):
        expect(switch(inspector, name)).to_be_visible()
    expect(panel_button(inspector, "Details")).to_have_text("Details")


def test_the_height_follows_the_window_and_the_notebook_does_not_grow(
    page: LabPage, inspector: Locator
) -> None:
    heights = []
    for height in (700, 1000):
        resize(page, inspector, 1440, height)
        box_of_it = inspector.bounding_box()
        assert box_of_it is not None
        heights.append(box_of_it["height"])
        visible = page.page.locator(".jp-WindowedPanel-outer").first.bounding_box()
        assert visible is not None
        assert box_of_it["height"] <= visible["height"]
    assert heights[1] - heights[0] == pytest.approx(300, abs=1)


def test_it_fills_the_screen(page: LabPage, inspector: Locator) -> None:
    button = inspector.get_by_role("button", name="Full screen")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert page.page.evaluate("document.fullscreenElement?.className").startswith("fxlab-inspector")
    assert inspector.evaluate(FILLS)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert not inspector.evaluate(FILLS)


def test_the_values_of_a_node_are_computed_when_asked_for_and_read_with_the_keyboard(
    page: LabPage, inspector: Locator
) -> None:
    keyboard = page.page.keyboard
    box(inspector, "embedding").click()
    page.settle(inspector)
    details = inspector.get_by_role("region", name="Details")
    details.get_by_role("button", name="Show values").focus()
    keyboard.press("Enter")
    page.settle(inspector)
    expect(details.get_by_role("row", name="NaN 0")).to_be_visible()
    field = details.get_by_role("application")
    field.focus()
    for key in ("ArrowDown", "ArrowDown", "End"):
        keyboard.press(key)
    reading = details.locator(".fxi-map-reading")
    expect(reading).to_contain_text("[0, 1, 7] = ")
    before = reading.inner_text()
    details.get_by_role("slider", name="Index in dimension 0").focus()
    keyboard.press("ArrowRight")
    expect(reading).to_contain_text("[1, 1, 7] = ")
    page.settle(inspector)
    assert reading.inner_text().partition("=")[2] != before.partition("=")[2]
    details.get_by_role("combobox", name="Tensor").select_option(label="weight")
    expect(field).to_have_attribute("aria-label", re.compile("weight: 20 rows and 8 columns"))
    field.scroll_into_view_if_needed()
    colours = []
    for theme in ("Light", "Dark"):
        page.set_theme(f"JupyterLab {theme}")
        page.settle(inspector)
        assert violations(page.page, ".fxi-details") == []
        colours.append(details.locator("canvas").evaluate(COLOURS))
    page.set_theme("JupyterLab Light")
    (different, light), (_, dark) = colours
    assert different > 50
    assert light != dark
