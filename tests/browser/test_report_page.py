"""A report in a browser, opened as a file: the graph lives without a kernel and without a network."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accessibility import violations
from drawing_models import Llama
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from report_page import SVG, Block, Blocks, box, checked, details_title, make_session, opened, settle
from torch import fx

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.paint import paint
from fxlab.overlays import Subject, source

pytestmark = pytest.mark.browser

FORWARD = Block.forward.__code__.co_firstlineno + 1


@pytest.fixture(scope="module")
def session() -> Session:
    return make_session()


@pytest.fixture(scope="module")
def file(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fxlab.report(session, path=tmp_path_factory.mktemp("report") / "blocks.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report; afterwards it must have asked for nothing but itself and its worker."""
    with checked(opened(browser, file)) as page:
        yield page


def saved_svg(page: Page, tmp_path: Path) -> str:
    page.get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG picture").click()
    download.value.save_as(tmp_path / "saved.svg")
    return (tmp_path / "saved.svg").read_text(encoding="utf-8")


def fills_of(svg: str) -> dict[str, str | None]:
    """Return the ids of what a saved picture shows, with what each is filled with; lines have no area."""
    groups = [group for group in ET.fromstring(svg).iter(f"{SVG}g") if "id" in group.attrib]
    shapes = {group.attrib["id"]: group.find(f"{SVG}rect") for group in groups}
    return {name: None if shape is None else shape.attrib["fill"] for name, shape in shapes.items()}


def test_one_node_is_counted_in_the_singular_and_paper_is_light(browser: Browser, tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output(None)
    file = fxlab.report(Session(fx.GraphModule(torch.nn.Module(), graph)), path=tmp_path / "one.html")
    with checked(opened(browser, file, color_scheme="dark")) as page:
        expect(page.locator(".fxi-summary")).to_have_text("1 node · 0 parameters")
        shown = page.locator(".fxlab-inspector")
        expect(shown).to_have_attribute("data-theme", "dark")
        page.emulate_media(media="print")
        expect(shown).to_have_attribute("data-theme", "light")
        page.emulate_media(media="screen")
        expect(shown).to_have_attribute("data-theme", "dark")


def test_the_first_picture_waits_for_no_layout(browser: Browser, file: Path) -> None:
    count = "const ask = Worker.prototype.postMessage; window.asked = 0;"
    count += (
        "Worker.prototype.postMessage = function (...what) { window.asked += 1; ask.apply(this, what); };"
    )
    with checked(opened(browser, file, count)) as page:
        expect(page.locator(".fxi-layer svg .node").first).to_be_visible()
        assert page.evaluate("asked") == 0
        page.get_by_role("button", name="Close opened groups").click()
        settle(page)
        assert page.evaluate("asked") == 1


def test_much_data_is_compressed_in_the_file_and_shown_as_ever(
    browser: Browser, file: Path, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fxlab.html_report.page._LARGE", 1000)
    packed = fxlab.report(session, path=tmp_path / "packed.html", measure=False)
    assert packed.stat().st_size < file.stat().st_size
    with checked(opened(browser, packed)) as page:
        box(page, "embedding").click()
        expect(details_title(page)).to_have_text("embedding")


def test_a_hidden_node_is_found_and_shown_with_all_that_is_known_of_it(page: Page) -> None:
    page.get_by_role("combobox", name="Search").fill("linear merged 2")
    page.locator(".fxi-results [role=option]").first.wait_for()
    page.keyboard.press("Enter")
    settle(page)
    expect(details_title(page)).to_have_text("query_key_merged_2")
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text("Changed by")
    expect(details).to_contain_text("(16, 8)")
    expect(page.locator(".fxi-layer svg .fxi-selected")).to_be_in_viewport()
    details.get_by_role("button", name="blocks_2_query", exact=True).first.click()
    settle(page)
    expect(details_title(page)).to_have_text("blocks_2_query")


def test_backspace_goes_the_way_back(page: Page) -> None:
    names = ["embedding", "head"]
    for name in names:
        page.get_by_role("combobox", name="Search").fill(name)
        page.locator(".fxi-results [role=option]").filter(
            has=page.get_by_text(name, exact=True)
        ).first.click()
        settle(page)
        expect(details_title(page)).to_have_text(name)
    graph = page.locator(".fxi-graph")
    graph.press("Backspace")
    settle(page)
    expect(details_title(page)).to_have_text("embedding")
    for _ in range(2):
        graph.press("Backspace")
        settle(page)
        expect(page.get_by_role("region", name="Details")).to_be_hidden()


def test_names_from_a_model_are_words_and_never_markup(page: Page) -> None:
    page.get_by_role("combobox", name="Search").fill("img")
    page.locator(".fxi-results [role=option]").first.wait_for()
    page.keyboard.press("Enter")
    settle(page)
    expect(page.get_by_role("region", name="Details")).to_contain_text("<img src=x")
    expect(page.locator("img")).to_have_count(0)
    turned = page.locator(".fxlab-inspector :not(svg *):not(wbr)").evaluate_all(
        """all => all.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.includes("\\u202e")))
              .map(e => getComputedStyle(e).unicodeBidi)"""
    )
    assert set(turned) == {"isolate"}
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="light"),
        pytest.param({"color_scheme": "dark"}, id="dark", marks=pytest.mark.weekly),
        pytest.param({"contrast": "more"}, id="high-contrast", marks=pytest.mark.weekly),
        pytest.param({"forced_colors": "active"}, id="forced-colours"),
    ],
)
def test_everybody_can_use_it(browser: Browser, file: Path, options: dict[str, Any]) -> None:
    page = opened(browser, file, **options)
    settle(page)
    assert violations(page, "html") == []
    page.get_by_text("Legend").click()
    page.get_by_role("combobox", name="Colour by").select_option("flops")
    page.get_by_role("combobox", name="Compare with").select_option("0")
    page.get_by_role("tab", name="Candidates").click()
    page.locator(".fxi-layer svg .node.fx-op").first.click()
    settle(page)
    assert violations(page, "html") == []
    page.context.close()


def test_it_is_saved_as_pixels_and_as_code(page: Page, session: Session, tmp_path: Path) -> None:
    for item, name in (("PNG picture", "Blocks.png"), ("Python code", "Blocks.py")):
        page.get_by_text("Export", exact=True).click()
        with page.expect_download() as download:
            page.get_by_role("button", name=item, exact=True).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    with Image.open(tmp_path / "Blocks.png") as picture:
        assert picture.width > 400
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 20
    assert (tmp_path / "Blocks.py").read_text() == session.to_python()


@pytest.mark.weekly
def test_the_page_shows_the_boxes_lines_and_colours_of_the_view_in_python(
    browser: Browser, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    inputs = (torch.arange(6).reshape(2, 3), torch.ones(3, 1), torch.zeros(3, 3))
    session = Session(fxlab.symbolic_trace(Llama().eval(), inputs), passes=[MergeLinears()])
    session.apply("merge-linears")
    page = opened(browser, fxlab.report(session, path=tmp_path / "llama.html"))
    for opening in ([], ["layers.[1-5]"], ["layers.0", "layers.3.self_attn", "layers.5"]):
        page.get_by_role("button", name="Close opened groups").click()
        settle(page)
        shows_the_view_in_python(page, session, opening, tmp_path)
        page.get_by_role("combobox", name="Colour by").select_option("")
        settle(page)
    page.context.close()


def shows_the_view_in_python(page: Page, session: Session, opening: list[str], tmp_path: Path) -> None:
    hierarchy = build_hierarchy(session.graph_module)
    view = View.default(hierarchy)
    for path in opening:
        view = view.open(path)
        search = page.get_by_role("combobox", name="Search")
        search.fill(path)
        page.locator(".fxi-results [role=option]").first.wait_for()
        expect(page.locator(".fxi-results [role=option]").first).to_contain_text(path)
        page.keyboard.press("Enter")
        settle(page)
    shown = {item.id for item in (*view.boxes, *view.clusters)}
    shown |= {f"edge-{edge.source.id}-{edge.target.id}" for edge in view.edges}
    for reader, chips in view.chips.items():
        shown |= {f"chip-{chip.source.id[2:]}-{reader}" for chip in chips}
    assert fills_of(saved_svg(page, tmp_path)).keys() == shown
    assert any("chip" in name for name in shown) == bool(opening)
    subject = Subject(session.graph_module)
    for overlay in (source("parameters").overlay(subject), source("dtype").overlay(subject)):
        page.get_by_role("combobox", name="Colour by").select_option(overlay.name)
        settle(page)
        coloured = fills_of(saved_svg(page, tmp_path))
        assert coloured.keys() == shown | {"fx-legend"}
        painted = paint(view, overlay).colours
        assert {box: coloured[box] for box in painted} == {
            box: colours.fill for box, colours in painted.items()
        }


def test_what_is_searched_for_is_found(browser: Browser, tmp_path: Path) -> None:
    torch.manual_seed(0)
    traced = fxlab.symbolic_trace(Blocks(), (torch.arange(10).reshape(2, 5),))
    session = Session(traced, passes=[MergeLinears(), ChangeTrueDivToMulByInverse()])
    session.apply("merge-linears")
    nodes = fxlab.nodes(session)
    expected = {
        "op:call_module": nodes["op"] == "call_module",
        "module:blocks.1": nodes["module"].str.startswith("blocks.1"),
        "class:Embedding": nodes["class"].str.contains("Embedding"),
        "shape:(2, 5)": nodes["shape"] == (2, 5),
        "dtype:i64": nodes["dtype"] == "int64",
        "by:merge-linears": nodes["marks"].str.contains("merge-linears"),
        f"source:report_page.py:{FORWARD}": nodes["source"].str.contains(f"report_page.py:{FORWARD} "),
    }
    messages = {
        "inputs:nobody": 'There is no node "nobody".',
        "by:nobody": 'There is no pass "nobody".',
        "opp:x": 'There is no field "opp".',
    }
    file = fxlab.report(session, path=tmp_path / "searched.html", measure=False)
    with checked(opened(browser, file)) as page:
        field, popup = page.get_by_role("combobox", name="Search"), page.locator(".fxi-results")
        for query in (*expected, *messages):
            names = {*nodes.index[expected[query]]} if query in expected else set()
            assert names or query in messages
            field.fill("")
            expect(popup.get_by_role("option", name="op:call_module")).to_be_visible()
            field.fill(query)
            expect(popup.locator(".fxi-search-field")).to_have_count(0)
            assert names <= set(popup.locator("strong").all_text_contents()), query
            shown = popup.locator(".fxi-search-all")
            words = {0: [], 1: ["Show it in the graph"]}.get(
                len(names), [f"Show all {len(names)} in the graph"]
            )
            assert shown.locator("span").all_text_contents() == words, query
            if query in messages:
                expect(popup).to_contain_text(messages[query])


@pytest.mark.weekly
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="light", marks=pytest.mark.weekly),
        pytest.param({"color_scheme": "dark"}, id="dark"),
        pytest.param({"contrast": "more"}, id="high-contrast", marks=pytest.mark.weekly),
        pytest.param({"forced_colors": "active"}, id="forced-colours", marks=pytest.mark.weekly),
    ],
)
def test_everybody_can_search(browser: Browser, file: Path, options: dict[str, Any]) -> None:
    page = opened(browser, file, **options)
    search, rows = page.get_by_role("combobox", name="Search"), page.locator(".fxi-results strong")
    search.click()
    expect(page.get_by_role("listbox", name="Fields")).to_be_visible()
    assert violations(page, "html") == []
    search.fill("op:call_module")
    expect(rows.first).to_be_visible()
    assert violations(page, "html") == []
    search.fill("inputs:nobody")
    expect(rows).to_have_count(0)
    assert violations(page, "html") == []
    search.fill("class:Linear")
    page.keyboard.press("Shift+Enter")
    settle(page)
    assert violations(page, "html") == []
    page.context.close()
