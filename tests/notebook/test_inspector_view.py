"""How the page looks at the graph: set by scripts or the page, checked, and drawn without the page."""

from __future__ import annotations

import base64
import copy
import xml.etree.ElementTree as ET
from typing import Any

import pandas as pd
import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, Page, make_session

import fxlab.overlays.overlay
from fxlab import Session
from fxlab.notebook.inspector import Inspector
from fxlab.notebook.page.conforming import LONGEST_LIST, LONGEST_TEXT
from fxlab.notebook.page.view_state import AT_FIRST

RELU = {"kind": "node", "name": "relu", "pane": 0}


@pytest.fixture
def beside(page: Page) -> Page:
    """Two passes on, and the original beside the last stage."""
    page.switches(FUSE, True)
    page.switches(MERGE, True)
    page.inspector.show_stage(2, "original", beside=True)
    return page


def view(page: Page) -> dict[str, Any]:
    return copy.deepcopy(page.inspector._shown_view)


def words(svg: str) -> set[str]:
    return {"".join(text.itertext()) for text in ET.fromstring(svg).iter() if text.tag.endswith("}text")}


# What a page sets.


@pytest.mark.parametrize(
    "change",
    [
        {"stage": 0},
        {"stage": 7},
        {"compared": "below", "beside": True},
        {"compared": 3},
        {"opened": []},
        {"opened": ["head", "no such group"]},
        {"query": "opp:x \0 ["},
        {"overlay": "flops"},
        {"overlay": "no such overlay"},
        {"selected": RELU},
        {"selected": {"kind": "group", "name": "no such group", "pane": 1}},
    ],
    ids=str,
)
def test_a_page_keeps_its_view_and_it_can_be_drawn(page: Page, change: dict[str, Any]):
    wanted = AT_FIRST | change
    page.sets({"_shown_view": wanted})
    assert page.error is None
    assert page.inspector._shown_view == wanted
    assert page.inspector.svg.startswith("<svg")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"stage": -1}, "stage"),
        ({"stage": True}, "stage"),
        ({"stage": 2**31}, "stage"),
        ({"compared": "original"}, "compared"),
        ({"beside": 1}, "beside"),
        ({"between": [0, 1, 2, 3, 4]}, "between"),
        ({"between": ["1"]}, "between"),
        ({"opened": "head"}, "opened"),
        ({"opened": [3]}, "opened"),
        ({"opened": ["x" * (LONGEST_TEXT + 1)]}, "opened"),
        ({"opened": [""] * (LONGEST_LIST + 1)}, "opened"),
        ({"query": None}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"overlay": 3}, "overlay"),
        ({"selected": "relu"}, "selected"),
        ({"direction": "up"}, "direction"),
        ({"shapes": 1}, "shapes"),
        ({"lines": "thick"}, "lines"),
        ({"bookkeeping": None}, "bookkeeping"),
        ({"selected": RELU | {"kind": "edge"}}, "selected"),
        ({"selected": RELU | {"name": None}}, "selected"),
        ({"selected": RELU | {"pane": -1}}, "selected"),
        ({"selected": RELU | {"more": 0}}, "selected"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_view_becomes_words_and_changes_nothing(page: Page, change: dict[str, Any], wrong: str):
    before = view(page)
    page.sets({"_shown_view": before | change})
    assert page.inspector._shown_view == before
    assert "not allowed" in page.error["title"]
    assert f"wrong {wrong}" in page.error["text"]


@pytest.mark.parametrize("value", [None, [], "view", {}, AT_FIRST | {"more": 1}], ids=str)
def test_what_is_no_view_becomes_words(page: Page, value: object):
    page.sets({"_shown_view": value})
    assert page.inspector._shown_view == AT_FIRST
    assert "not allowed" in page.error["title"]


# What scripts set.


def test_nodes_and_groups_are_selected_from_python(page: Page):
    page.inspector.selected = "relu"
    assert (page.inspector.selected, view(page)["selected"]) == ("relu", RELU)
    page.inspector.selected = "head"
    assert view(page)["selected"] == {"kind": "group", "name": "head", "pane": 0}
    page.inspector.selected = None
    assert (page.inspector.selected, view(page)["selected"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "error"), [("nobody", ValueError), ("", ValueError), (3, TypeError), ([], TypeError)]
)
def test_a_wrong_selection_from_python_raises(page: Page, name, error):
    page.inspector.selected = "relu"
    with pytest.raises(error, match=r"no node named|name of a node or None"):
        page.inspector.selected = name
    assert page.inspector.selected == "relu"


def test_a_node_that_is_gone_is_selected_in_the_stage_beside(beside: Page):
    beside.inspector.selected = "stem_norm"
    assert view(beside)["selected"] == {"kind": "node", "name": "stem_norm", "pane": 1}
    beside.inspector.selected = "stem_conv"
    assert view(beside)["selected"]["pane"] == 0, "the later stage comes first"


def test_a_selection_is_none_once_its_node_is_gone(page: Page):
    page.inspector.selected = "stem_norm"
    page.switches(MUL_TO_ADD, True)
    assert page.inspector.selected == "stem_norm"
    page.switches(FUSE, True)
    assert page.inspector.selected is None


def test_groups_are_opened_and_closed_from_python(page: Page):
    first = words(page.inspector.svg)
    page.inspector.close_group("head")
    assert "relu" in first - words(page.inspector.svg)
    page.inspector.close_group("stem")
    assert view(page)["opened"] == []
    page.inspector.open_group("head")
    assert view(page)["opened"] == ["head"]
    assert "relu" in words(page.inspector.svg)
    page.switches(MUL_TO_ADD, True)
    assert view(page)["opened"] == ["head"], "what a person has chosen stays"
    for change in (page.inspector.open_group, page.inspector.close_group):
        with pytest.raises(ValueError, match="no group"):
            change("tail")
    assert view(page)["opened"] == ["head"]


def test_nodes_are_lit_up_from_python(page: Page):
    page.inspector.filter("  by:merge-linears ")
    assert view(page)["query"] == "by:merge-linears"
    page.switches(MERGE, True)
    assert view(page)["query"] == "by:merge-linears", "it stays while passes are switched"
    with pytest.raises(TypeError, match="a str or None, got 3"):
        page.inspector.filter(3)
    assert view(page)["query"] == "by:merge-linears"
    page.inspector.filter(None)
    assert view(page)["query"] == ""


@pytest.mark.parametrize("text", ["x" * (LONGEST_TEXT + 1), "\ud800"], ids=["long", "half a character"])
def test_a_query_that_no_page_can_be_sent_is_a_value_error(page: Page, text: str):
    with pytest.raises(ValueError, match="wrong query"):
        page.inspector.filter(text)
    assert view(page)["query"] == ""


def test_a_stage_is_shown_alone_or_compared(beside: Page):
    inspector = beside.inspector
    pairs, merged = inspector._shown_stages["pairs"], inspector._shown_stages["merged"]
    assert (set(pairs), merged) == ({"2/0"}, {})
    assert view(beside) == AT_FIRST | {"stage": 2, "compared": 0, "beside": True}
    inspector.show_stage(2, "below")
    assert view(beside) == AT_FIRST | {"stage": 2, "compared": "below"}
    assert set(inspector._shown_stages["merged"]) == {"2/1"}
    assert beside.marked()["query_key_merged"] == ["added"]
    inspector.show_stage(0)
    assert view(beside) == AT_FIRST | {"stage": 0}
    assert beside.marked() == {}
    assert inspector.session.applied == (FUSE, MERGE), "looking changes nothing"


def test_stages_are_shown_in_a_row(beside: Page):
    inspector = beside.inspector
    assert inspector.panes == [0, 2]
    inspector.panes = [2, 0, 1, 0]
    assert inspector.panes == [0, 1, 2]
    assert view(beside) == AT_FIRST | {"stage": 2, "compared": 0, "beside": True, "between": [1]}
    assert {"1/0", "2/1"} <= {*inspector._shown_stages["pairs"]}
    inspector.selected = "head_query"
    assert view(beside)["selected"] == {"kind": "node", "name": "head_query", "pane": 0}
    beside.switches(MERGE, False)
    assert inspector.panes == [0, 1], "of which the last is the last"
    inspector.panes = [1]
    assert inspector.panes == [1]
    assert view(beside)["beside"] is False
    shown = view(beside)
    for wrong in ([], [2], [0, -1], [0, True], "01", range(7), None):
        with pytest.raises(ValueError, match="panes: expected the numbers of 1 to 6 stages from 0 to 1, got"):
            inspector.panes = wrong
    assert view(beside) == shown


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3,), "no stage 3: the last is 2"),
        ((-1,), "no stage -1"),
        (("1",), "no stage 1"),
        ((0, "original"), "Stage 0 cannot be compared with 'original', but with nothing"),
        ((0, 0), "but with nothing"),
        ((2, "x"), "Stage 2 cannot be compared with 'x', but with .* of an earlier stage: 0, 1"),
        ((2, 2), "cannot be compared with 2"),
        ((2, -1), "cannot be compared with -1"),
        ((2, True), "cannot be compared with True"),
        ((2, 0.0), "cannot be compared with 0.0"),
    ],
)
def test_a_stage_that_there_is_not_is_refused_and_nothing_changes(beside: Page, arguments, match):
    before = view(beside)
    with pytest.raises(ValueError, match=match):
        beside.inspector.show_stage(*arguments)
    with pytest.raises(ValueError, match="needs one to be compared with"):
        beside.inspector.show_stage(1, beside=True)
    assert view(beside) == before


@pytest.mark.parametrize(
    ("compared", "is_beside", "expected"),
    [
        ("below", True, ("below", True)),
        (0, True, (0, True)),
        (1, True, ("below", True)),  # of the one stage that is left, 1 is not below
        ("below", False, ("", False)),
        (0, False, ("", False)),
    ],
)
def test_after_a_change_the_last_stage_is_shown_and_two_stay_side_by_side(
    beside: Page, compared, is_beside: bool, expected
):
    beside.inspector.show_stage(2, compared, beside=is_beside)
    beside.switches(MERGE, False)
    shown = view(beside)
    assert shown["stage"] is None
    assert (shown["compared"], shown["beside"]) == expected
    beside.switches(FUSE, False)
    assert (view(beside)["compared"], view(beside)["beside"]) == ("", False), "there is but one stage"
    assert beside.error is None


def test_the_graph_is_coloured_by_anybodys_values(page: Page):
    inspector = page.inspector
    inspector.overlay(pd.DataFrame({"<mine>": {"stem_conv": 3, "stem_norm": "x"}, "other": {"relu": 1}}))
    assert view(page)["overlay"] == "<mine>"
    assert [o["title"] for o in inspector._shown_overlays][-2:] == ["<mine>", "other"]
    (sent,) = page.data.tables["overlays"]
    values = dict(zip(page.data.names(page.number), sent["values"], strict=True))
    assert {name: value for name, value in values.items() if value is not None} == {
        "stem_conv": "3",  # beside a text
        "stem_norm": "x",
    }
    inspector.overlay(None)
    assert view(page)["overlay"] == ""
    for wrong, error, match in (
        ([1], TypeError, "got 1"),
        ("nonsense", ValueError, "none of the name 'nonsense'"),
        (pd.DataFrame(), ValueError, "a DataFrame without any"),
        (pd.Series({"relu": 1}, name="\ud800"), ValueError, "wrong overlay"),
    ):
        with pytest.raises(error, match=match):
            inspector.overlay(wrong)
        assert view(page)["overlay"] == ""


def test_both_stages_are_coloured_each_by_its_own_values(beside: Page):
    beside.inspector.overlay("parameters")
    after, before = beside.data.tables["overlays"]
    alone = beside.inspector._shown_stages["alone"]
    assert (after["graph"], before["graph"]) == (alone["2"], alone["0"])
    assert [sum(filter(None, side["values"])) for side in (after, before)] == [162, 170], "the norm had 8"


def test_a_stage_is_measured_once(beside: Page, monkeypatch: pytest.MonkeyPatch):
    measured = []
    profile = fxlab.validation.profile
    monkeypatch.setattr(
        "fxlab.validation.profile",
        lambda gm, *rest, **options: measured.append(gm) or profile(gm, *rest, **options),
    )
    stages = beside.inspector.session.stages
    for name in ("flops", "memory", "flops"):
        beside.inspector.overlay(name)
    assert measured == [stages[2], stages[0]]


# What is drawn without the page.


def test_the_picture_has_the_colours_of_the_overlay(page: Page):
    plain = page.inspector.svg
    page.inspector.overlay("parameters")
    assert "Parameters" in words(page.inspector.svg) - words(plain)
    encoded = base64.b64encode(page.inspector.svg.encode()).decode()
    assert encoded in page.inspector._repr_mimebundle_()[0]["text/html"]
    page.inspector.overlay(None)
    assert page.inspector.svg == plain


def test_what_is_shown_is_exported_as_pdf(beside: Page):
    assert beside.asks({"type": "file", "suffix": "pdf"}) is None
    assert "PDF and DOT files have one graph" in beside.inspector._shown_status["error"]["text"]
    beside.inspector.show_stage(2, "")
    assert beside.asks({"type": "file", "suffix": "pdf"}) is None
    (data,) = beside.buffers
    assert data.startswith(b"%PDF-1.")
    assert data.rstrip().endswith(b"%%EOF")
    table = int(data[data.rindex(b"startxref") :].split()[1])
    assert data[table : table + 4] == b"xref"
    assert beside.inspector._shown_status == {"busy": None, "error": None}


def test_a_preview_is_drawn(page: Page):
    page.inspector.preview(MERGE)
    assert "query_key_merged" in words(page.inspector.svg)
    page.inspector.end_preview()
    assert "query_key_merged" not in words(page.inspector.svg)


def test_a_notebook_without_a_kernel_still_shows_the_picture(page: Page, session: Session, monkeypatch):
    page.switches(MERGE, True)
    published: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.publish_display_data", lambda data, *_: published.append(data))
    page.inspector._ipython_display_()
    picture, view = published
    assert set(picture) == {"text/html", "text/plain"}
    assert f"data-fxlab-static='{page.inspector._static_name}'" in picture["text/html"]
    assert "query_key_merged" in picture["text/html"], "the table of changed nodes"
    assert picture["text/plain"] == f"<fxlab inspector: Model, {len(session.graph_module.graph.nodes)} nodes>"
    assert view.pop("text/plain") == ""
    assert view["application/vnd.jupyter.widget-view+json"]["model_id"] == page.inspector.model_id
    assert len(view) == 1


def test_a_page_is_told_what_a_script_has_changed_and_nothing_else() -> None:
    page = Page(Inspector(make_session()))
    page.inspector.selected = "x"
    selected = {"kind": "node", "name": "x", "pane": 0}
    assert page.received == [{"type": "look", "view": {"selected": selected}}]
