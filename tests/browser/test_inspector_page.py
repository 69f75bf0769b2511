"""The inspector of a small model in a JupyterLab, with mouse and keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accessibility import violations
from blocks_page import (
    MERGED_NODES,
    MODEL,
    NODES,
    box,
    cut_off,
    has_nodes,
    is_on,
    open_blocks,
    open_passes,
    put_back,
    shown_twice,
    switch,
)
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

NONSENSE: list[Any] = [
    None,
    7,
    "undo",
    [],
    {},
    {"type": "toggle"},
    {"type": "open", "path": 3},
    {"type": "x" * 9999},
]


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    return open_blocks(lab, lab_page)


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    """The first of them, with all passes off and nothing selected."""
    found = page.inspector(0)
    page.settle(found)
    yield found
    put_back(page, found)


def test_a_pass_lights_its_nodes_and_fills_the_tables_until_it_is_switched_off(
    page: LabPage, inspector: Locator
) -> None:
    lit = inspector.locator(".fxi-layer svg .node.fxi-lit")
    has_nodes(inspector, NODES)
    expect(inspector).to_contain_text("No pass is on")

    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    is_on(inspector, "Merge linears", True)
    has_nodes(inspector, MERGED_NODES)
    # One of four blocks that are changed alike is opened.
    expect(lit).to_have_count(4)
    expect(inspector.locator(".fxi-layer svg .node.fx-op.fxi-lit")).to_have_count(1)
    # Processors round a merged product alike or not.
    expect(inspector.locator(".fxi-verdict")).to_contain_text(re.compile("every bit|differ in 1 of 1 tensor"))
    expect(inspector.get_by_role("row").filter(has_text="<img")).to_contain_text(re.compile("yes|no"))
    inspector.get_by_role("tab", name="Changed nodes").click()
    expect(inspector.get_by_role("row").filter(has_text="query_key_merged")).to_have_count(4)

    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    has_nodes(inspector, NODES)
    expect(inspector.locator(".fxi-layer svg .fx-changed")).to_have_count(0)
    expect(inspector).to_contain_text("No pass is on")


def test_whether_a_difference_is_rounding_is_answered_in_words(page: LabPage, inspector: Locator) -> None:
    switch(inspector, "Change true div to mul by inverse").click()
    page.settle(inspector)
    verdict = inspector.locator(".fxi-verdict")
    expect(verdict).to_contain_text("Not judged yet")
    verdict.get_by_role("button", name="Judge").click()
    page.settle(inspector)
    expect(verdict).to_contain_text("Within the model's own rounding")
    switch(inspector, "Change true div to mul by inverse").click()
    page.settle(inspector)
    expect(verdict).to_be_hidden()


def test_one_rewrite_is_taken_back_and_applied_again_with_the_keyboard(
    page: LabPage, inspector: Locator
) -> None:
    keyboard = page.page.keyboard
    details = inspector.get_by_role("region", name="Details")
    card = inspector.locator("[data-pass]").filter(has_text="Merge linears")
    lit = inspector.locator(".fxi-layer svg .node.fxi-lit")
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    inspector.get_by_role("tab", name="Changed nodes").click()
    inspector.get_by_role("button", name="query_key_merged_1").click()
    page.settle(inspector)
    details.get_by_role("button", name="Exclude this rewrite").focus()
    keyboard.press("Enter")
    page.settle(inspector)
    is_on(inspector, "Merge linears", True)
    expect(lit).to_have_count(2)
    expect(card).to_contain_text(re.compile("3 rewrites: 6 linears become 3.*1 excluded"))
    expect(details.get_by_role("heading", level=2)).to_have_text("blocks_1_query")

    expect(details.get_by_role("button", name="Include this candidate")).to_be_focused()
    keyboard.press("Enter")
    page.settle(inspector)
    expect(lit).to_have_count(4)
    expect(card).to_contain_text("4 rewrites: 8 linears become 4")
    expect(card).not_to_contain_text("excluded")
    inspector.get_by_role("button", name="Undo").click()
    page.settle(inspector)
    # Which of the equal blocks is open depends on what was looked at.
    expect(card).to_contain_text(re.compile("3 rewrites: 6 linears become 3.*1 excluded"))

    card.locator("summary").click()
    expect(card).to_contain_text("excluded on request")
    card.get_by_role("button", name="Include blocks_1_key").click()
    page.settle(inspector)
    expect(lit).to_have_count(4)
    card.locator("summary").click()


@pytest.mark.weekly
def test_two_inspectors_of_a_session_agree(page: LabPage, inspector: Locator) -> None:
    with shown_twice(page) as other:
        switch(inspector, "Merge linears").click()
        page.settle(inspector)
        is_on(other, "Merge linears", True)
        has_nodes(other, MERGED_NODES)
        # Their panels have the same names.
        assert violations(page.page, ".fxlab-inspector", without=("landmark-unique",)) == []


def test_the_wheel_scrolls_the_notebook_until_the_graph_is_clicked_and_zooms_with_ctrl(
    page: LabPage, inspector: Locator
) -> None:
    mouse, graph = page.page.mouse, inspector.locator(".fxi-graph")
    percent, hint = inspector.locator(".fxi-percent"), inspector.locator(".fxi-hint")

    def top() -> float:
        area = graph.bounding_box()
        assert area is not None
        return float(area["y"])

    area = graph.bounding_box()
    assert area is not None
    inspector.get_by_role("combobox", name="Search").focus()
    mouse.move(area["x"] + 60, area["y"] + 60)
    before, size = top(), percent.inner_text()
    mouse.wheel(0, -100)
    page.page.wait_for_function(
        "before => document.querySelector('.fxi-graph').getBoundingClientRect().y > before", arg=before
    )
    mouse.wheel(0, 100)
    page.page.wait_for_timeout(400)
    before = top()
    page.page.keyboard.down("Control")
    mouse.wheel(0, -240)
    page.page.keyboard.up("Control")
    expect(percent).not_to_have_text(size)
    page.settle(inspector)
    graph.click(position={"x": 5, "y": 5})
    expect(hint).to_have_count(0)
    node, size = box(inspector, "embedding"), percent.inner_text()
    shown = node.bounding_box()
    assert shown is not None
    mouse.wheel(30, 20)
    page.settle(inspector)
    moved = node.bounding_box()
    assert moved is not None
    assert (moved["x"] - shown["x"], moved["y"] - shown["y"]) == pytest.approx((-30, -20), abs=2)
    assert (percent.inner_text(), top()) == (size, before)


def test_the_graph_is_saved_and_the_session_as_a_report(
    page: LabPage, inspector: Locator, tmp_path: Path
) -> None:
    items = {"SVG picture": "Blocks.svg", "PDF": "Blocks.pdf", "Graphviz DOT": "Blocks.dot"}
    items["HTML report"] = "Blocks.html"
    for item, name in items.items():
        inspector.get_by_text("Export", exact=True).click()
        with page.page.expect_download() as download:
            inspector.get_by_role("button", name=item, exact=True).click()
        download.value.save_as(tmp_path / name)
        assert download.value.suggested_filename == name
    page.settle(inspector)
    assert (tmp_path / "Blocks.svg").read_text().lstrip().startswith("<svg")
    assert (tmp_path / "Blocks.dot").read_text().startswith("digraph")
    pdf = (tmp_path / "Blocks.pdf").read_bytes()
    assert "fxlab-session" in (tmp_path / "Blocks.html").read_text()
    assert pdf.startswith(b"%PDF")
    assert pdf.rstrip().endswith(b"%%EOF")


def test_names_from_a_model_are_words_and_never_markup(page: LabPage, inspector: Locator) -> None:
    switch(inspector, "Breaks").click()
    page.settle(inspector)
    inspector.get_by_role("combobox", name="Search").fill("img")
    inspector.locator(".fxi-results [role=option]").first.wait_for()
    page.page.keyboard.press("Enter")
    page.settle(inspector)
    expect(inspector.get_by_role("region", name="Details")).to_contain_text("<img src=x")
    inspector.locator(".fxi-layer svg .fxi-selected").hover()
    expect(inspector.locator("img, #injected, .fxi-tooltip b")).to_have_count(0)
    assert page.page.evaluate("window.hacked") is None


def test_nonsense_from_the_page_is_named_and_changes_nothing(page: LabPage, inspector: Locator) -> None:
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    page.page.evaluate(
        """messages => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            for (const comm of kernel._comms.values())
                for (const content of messages) comm.send({ method: "custom", content });
        }""",
        NONSENSE,
    )
    expect(inspector.get_by_role("alert")).to_contain_text("Unknown message type")
    is_on(inspector, "Merge linears", True)
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    has_nodes(inspector, NODES)


def test_everybody_can_use_it(page: LabPage, inspector: Locator) -> None:
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    box(inspector, "embedding").click()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.set_theme(theme)
        page.settle(inspector)
        assert violations(page.page, ".fxlab-inspector") == []


@pytest.mark.parametrize(
    "width", [700, *(pytest.param(wide, marks=pytest.mark.weekly) for wide in (1000, 1400))]
)
def test_nothing_is_cut_off_in_a_window_of_any_width(page: LabPage, inspector: Locator, width: int) -> None:
    whole = page.page.viewport_size
    assert whole is not None
    page.page.set_viewport_size({"width": width, "height": 900})
    page.page.wait_for_timeout(300)
    open_passes(inspector)
    switch(inspector, "Merge linears").click()
    page.settle(inspector)
    inspector.get_by_role("button", name="Show all of the graph").click()
    page.settle(inspector)
    box(inspector, "embedding").click()
    page.settle(inspector)
    page.page.wait_for_timeout(300)
    found = cut_off(inspector)
    page.page.set_viewport_size(whole)
    page.page.wait_for_timeout(300)
    assert found == []


INSPECTORS = """one, two = fxlab.inspect(session), fxlab.inspect(session)
again = iter([one, two, one])
"""
ARE_BEHIND = """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
    .requestExecute({ code: "", user_expressions: { now: "[i._is_behind for i in (one, two)]" } })
    .done.then(({ content }) => content.user_expressions.now.data["text/plain"])
"""


def test_a_cell_that_is_run_again_leaves_an_inspector_that_does_nothing_until_it_is_shown(
    lab: JupyterLab, lab_page: LabPage
) -> None:
    lab.write("again.ipynb", MODEL.removesuffix("fxlab.inspect(session)\n") + INSPECTORS, "next(again)")
    lab_page.open("again.ipynb")
    lab_page.run_all()
    for nodes, behind in ((NODES, "[False, True]"), (MERGED_NODES, "[True, False]"), (NODES, None)):
        inspector = lab_page.inspector()
        lab_page.wait_until_idle()
        lab_page.settle(inspector)
        has_nodes(inspector, nodes)
        if behind:
            switch(inspector, "Merge linears").click()
            lab_page.settle(inspector)
            has_nodes(inspector, NODES + MERGED_NODES - nodes)
            assert lab_page.page.evaluate(ARE_BEHIND) == behind
            inspector.evaluate("element => element.remove()")
            lab_page.command("notebook:run-cell")
    open_blocks(lab, lab_page)  # for tests that come after this one
