"""Two stages of a report beside each other, without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accessibility import violations
from blocks_page import cut_off
from playwright.sync_api import Browser, Locator, Page, expect
from report_page import box, checked, details_title, make_session, opened, settle

import fxlab
from fxlab import Session

pytestmark = pytest.mark.browser

DIVIDE = "Change true div to mul by inverse"


@pytest.fixture(scope="module")
def session() -> Session:
    return make_session()


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fxlab.report(session, path=tmp_path_factory.mktemp("report") / "blocks.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report with the original beside the last stage."""
    with checked(opened(browser, file)) as page:
        show_beside(page)
        yield page


def show_beside(page: Page, compared: str = "0") -> None:
    page.get_by_role("button", name="Side by side").click()
    settle(page)
    page.get_by_role("combobox", name="Compare with").select_option(compared)
    settle(page)


def side(page: Page, stage: str) -> Locator:
    return page.get_by_role("group", name=stage, exact=True)


def before(page: Page) -> Locator:
    return side(page, "Original")


def after(page: Page) -> Locator:
    return side(page, f"2. {DIVIDE}")


def find(page: Page, name: str) -> None:
    """Select a node by searching for its name."""
    page.get_by_role("combobox", name="Search").fill(name)
    page.get_by_role("option").filter(has=page.get_by_text(name, exact=True)).click()
    settle(page)


def test_a_group_says_what_changed_in_it_between_the_two(page: Page) -> None:
    said = []
    for of in (after(page), before(page)):
        box(of, "blocks.0").first.locator("text").first.click()
        settle(page)
        expect(details_title(page)).to_have_text("blocks.0")
        fields = page.get_by_role("region", name="Details").locator("dl").first
        expect(fields).to_contain_text("Nodes that differ")
        said.append(fields.inner_text())
    assert said[0] != said[1]
    expect(page.locator(".fxi-layer .fxi-selected:not(.edge)")).to_have_count(2)


def place_of(side: Locator, title: str) -> tuple[float, float]:
    """Return where the middle of a box lies, from the middle of its window."""
    window = side.get_by_role("application").bounding_box()
    shape = box(side, title).first.locator(".fx-shape").first.bounding_box()
    assert window is not None
    assert shape is not None
    return (
        shape["x"] + shape["width"] / 2 - window["x"] - window["width"] / 2,
        shape["y"] + shape["height"] / 2 - window["y"] - window["height"] / 2,
    )


def drag(page: Page, start: tuple[float, float], down: float) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(start[0], start[1] + max(-200.0, min(200.0, down)), steps=4)
    page.mouse.up()


@pytest.mark.weekly
def test_both_show_the_same_part_of_the_model_wherever_one_is_moved(page: Page) -> None:
    left, right = before(page), after(page)
    page.get_by_role("button", name="Open all that is closed").click()
    settle(page)
    area = right.get_by_role("application").bounding_box()
    assert area is not None
    middle = (area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
    assert place_of(right, "head")[1] - place_of(left, "head")[1] > 150, "the graph on the right is longer"
    for title in ("mul", "mul_1", "mul_2", "head"):
        for _ in range(20):
            away = place_of(right, title)[1]
            if abs(away) > 60:
                drag(page, middle, -away)
        settle(page)
        assert abs(place_of(right, title)[1]) < 60
        assert place_of(left, title) == pytest.approx(place_of(right, title), abs=40)


def test_stages_stand_in_a_row_that_is_kept_in_the_address(page: Page) -> None:
    page.get_by_role("button", name="Add a pane").click()
    settle(page)
    heads = page.locator(".fxi-pane-head h3")
    expect(heads).to_have_text(["Original", "1. Merge linears", f"2. {DIVIDE}"])
    expect(page.get_by_role("button", name="Add a pane")).to_have_count(0)
    find(page, "query_key_merged_2")
    middle, right = side(page, "1. Merge linears"), after(page)
    expect(before(page).locator(".fxi-layer svg .node.fxi-selected")).to_have_count(2)
    expect(before(page).get_by_role("status")).to_have_text("Counterparts: query, key")
    expect(middle.get_by_role("status")).to_have_text("Counterpart: query_key_merged")
    chosen = [of.locator(".node.fxi-selected .fx-shape").first.bounding_box() for of in (middle, right)]
    assert chosen[0]
    assert chosen[1]
    assert chosen[0]["y"] == pytest.approx(chosen[1]["y"], abs=1)
    page.reload()
    settle(page)
    expect(heads).to_have_count(3)
    expect(details_title(page)).to_have_text("query_key_merged_2")
    middle.get_by_role("button", name="Close this pane").click()
    settle(page)
    expect(heads).to_have_text(["Original", f"2. {DIVIDE}"])
    before(page).get_by_role("combobox").select_option("1")
    settle(page)
    expect(heads).to_have_text(["1. Merge linears", f"2. {DIVIDE}"])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="light", marks=pytest.mark.weekly),
        pytest.param({"color_scheme": "dark"}, id="dark", marks=pytest.mark.weekly),
        pytest.param({"contrast": "more"}, id="high-contrast"),
        pytest.param({"forced_colors": "active"}, id="forced-colours", marks=pytest.mark.weekly),
    ],
)
def test_everybody_can_use_it(browser: Browser, file: Path, options: dict[str, Any]) -> None:
    page = opened(browser, file, **options)
    show_beside(page)
    find(page, "query_key_merged_2")
    assert violations(page, "html") == []
    page.context.close()


@pytest.mark.parametrize(
    ("width", "stacked"),
    [(420, True), *(pytest.param(width, False, marks=pytest.mark.weekly) for width in (1000, 700))],
)
def test_there_is_room_for_both_in_a_window_of_any_width(page: Page, width: int, stacked: bool) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    page.wait_for_timeout(300)
    find(page, "query_key_merged_2")
    left, right = (of.get_by_role("application").bounding_box() for of in (before(page), after(page)))
    assert left is not None
    assert right is not None
    assert (left["y"] + left["height"] <= right["y"]) == stacked
    for area in (left, right):
        assert area["width"] > 200
        assert area["height"] > 150
    assert cut_off(page.locator(".fxlab-inspector")) == []
