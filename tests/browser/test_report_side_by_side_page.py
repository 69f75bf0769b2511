"""Two stages of a report beside each other, without a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accessibility import violations
from blocks_page import cut_off
from playwright.sync_api import Browser, Locator, Page, expect
from report_page import box, checked, details_title, make_session, opened, settle, show_table
from torch import fx, nn

import fxlab
from fxlab import (
    FuseBatchNorm2dInConv2d,
    RemoveDeadCode,
    RemoveIdentities,
    Session,
    Transformation,
    from_callable,
)

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


def stage_of(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Stage of the graph")


def comparison_of(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Compare with")


@pytest.mark.weekly
def test_the_comparison_stays_while_the_slider_goes_through_the_stages(
    browser: Browser, tmp_path: Path
) -> None:
    passes = [FuseBatchNorm2dInConv2d(), RemoveIdentities(), RemoveDeadCode()]
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Identity(), nn.ReLU()).eval()
    session = Session(fx.symbolic_trace(layers), passes=passes)
    for p in passes:
        session.apply(p)
    page = opened(browser, fxlab.report(session, path=tmp_path / "layers.html"))
    slider = page.get_by_role("slider", name="Stage")
    for way, graphs in (("One graph", 1), ("Side by side", 2)):
        for compared, shown in (
            ("0", ["0", "0", ""]),
            ("1", ["1", "below", ""]),
            ("below", ["below", "below", ""]),
        ):
            stage_of(page).select_option("3")
            settle(page)
            comparison_of(page).select_option(compared)
            settle(page)
            page.get_by_role("button", name=way).click()
            settle(page)
            for number, expected in zip((2, 1, 0), shown, strict=True):
                slider.press("ArrowLeft")
                settle(page)
                expect(page.get_by_role("alert")).to_be_hidden()
                expect(stage_of(page)).to_have_value(str(number))
                expect(slider).to_have_value(str(number))
                if number:
                    expect(comparison_of(page)).to_have_value(expected)
                expect(page.get_by_role("application")).to_have_count(graphs if number else 1)
            slider.press("End")
            settle(page)
            expect(comparison_of(page)).to_have_value(compared)
            expect(page.get_by_role("application")).to_have_count(graphs)
    page.context.close()


def clones(number: int) -> Transformation:
    """Return a pass that adds a node."""

    def clone(graph_module: fx.GraphModule) -> None:
        (x,) = graph_module.graph.find_nodes(op="placeholder")
        with graph_module.graph.inserting_after(x):
            graph_module.graph.call_function(torch.clone, (x,))

    return from_callable(clone, name=f"clone-{number}")


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("light", 1500, marks=pytest.mark.weekly),
        ("dark", 800),
        pytest.param("dark", 1500, marks=pytest.mark.weekly),
        pytest.param("light", 800, marks=pytest.mark.weekly),
    ],
)
def test_everybody_can_use_the_table_of_stages(browser: Browser, file: Path, width: int, scheme: Any) -> None:
    page = opened(browser, file, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 1000})
    show_table(page, "Stages")
    settle(page)
    assert violations(page, "html") == []
    page.context.close()


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
    ("width", "stacked"), [(1000, False), pytest.param(700, False, marks=pytest.mark.weekly), (420, True)]
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
