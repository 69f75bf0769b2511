"""Moving through the graph: selecting, opening, closing, searching, exporting."""

from __future__ import annotations

import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, Page

from fxlab import Session


def test_a_selected_node_is_described(page: Page):
    page.sends({"type": "select-node", "name": "head_query", "show": True, "before": False})
    details = page.inspector._shown_details
    assert (details["kind"], details["name"], details["subtitle"]) == ("node", "head_query", "call_module")
    assert details["box"] == page.box_of("head_query")
    assert [crumb["path"] for crumb in details["crumbs"]][:1] == ["head"]
    assert [p["name"] for p in details["parameters"]] == ["weight", "bias"]
    assert [link["name"] for link in details["users"]] == ["relu"]
    assert page.inspector.selected == "head_query"


def test_a_node_in_a_closed_group_is_brought_into_sight_if_that_is_asked_for(page: Page):
    page.sends({"type": "close", "path": "head"})
    page.sends({"type": "select-node", "name": "relu", "show": False, "before": False})
    assert page.box_of("relu") is None
    assert page.inspector._shown_details["box"] in page.inspector._shown_picture["boxes"]
    focus, _ = page.sends({"type": "select-node", "name": "relu", "show": True, "before": False})
    assert focus == {"type": "focus", "boxes": [page.box_of("relu")], "gently": False, "before": False}
    assert page.inspector._shown_details["box"] == page.box_of("relu")


def test_a_selected_group_is_described(page: Page):
    page.sends({"type": "select-group", "path": "head", "before": False})
    details = page.inspector._shown_details
    assert (details["kind"], details["path"], details["subtitle"]) == ("group", "head", "Head")
    assert {link["name"] for link in details["users"]} == {"truediv"}
    assert {"name": "Linear", "count": 2} in details["contents"]


def test_a_cleared_selection_shows_the_model(page: Page):
    page.sends({"type": "select-group", "path": "head", "before": False})
    page.sends({"type": "clear-selection"})
    assert page.inspector._shown_details["kind"] == "model"
    assert page.inspector.selected is None


def test_a_node_is_no_group(page: Page):
    page.sends({"type": "select-group", "path": "relu", "before": False})
    assert "no group named 'relu'" in page.error["text"]
    page.switches(MERGE, True)
    assert page.inspector._shown_details["kind"] == "model"
    assert page.inspector._shown_tables["outputs"]["state"] == "ready"


def test_a_selection_stays_while_its_node_does(page: Page):
    page.sends({"type": "select-node", "name": "stem_norm", "show": True, "before": False})
    page.switches(MUL_TO_ADD, True)
    assert page.inspector.selected == "stem_norm"
    page.switches(FUSE, True)
    assert page.inspector.selected is None
    assert page.inspector._shown_details["kind"] == "model"


def test_a_selected_node_shows_what_a_pass_did_to_it(page: Page):
    page.sends({"type": "select-node", "name": "mul", "show": True, "before": False})
    assert page.inspector._shown_details["marks"] == []
    page.switches(MUL_TO_ADD, True)
    assert page.inspector._shown_details["marks"] == [MUL_TO_ADD.signature]


def test_nodes_and_groups_are_selected_from_python(page: Page):
    page.inspector.selected = "relu"
    assert page.inspector._shown_details["name"] == "relu"
    page.inspector.selected = "head"
    assert page.inspector._shown_details["path"] == "head"
    page.inspector.selected = None
    assert page.inspector._shown_details["kind"] == "model"


@pytest.mark.parametrize(
    ("name", "error"), [("nobody", ValueError), ("", ValueError), (3, TypeError), ([], TypeError)]
)
def test_a_wrong_selection_from_python_raises(page: Page, name, error):
    with pytest.raises(error, match=r"node|group"):
        page.inspector.selected = name
    assert page.inspector.selected is None


def test_a_group_closes_and_opens(page: Page):
    boxes = page.inspector._shown_picture["boxes"]
    page.sends({"type": "close", "path": "head"})
    closed = page.inspector._shown_picture["boxes"]
    assert page.box_of("relu") is None
    assert [box["openable"] for box in closed.values() if box["path"] == "head"] == [True]
    page.sends({"type": "open", "path": "head"})
    assert page.inspector._shown_picture["boxes"].keys() == boxes.keys()


def test_groups_are_opened_and_closed_from_python(page: Page):
    page.inspector.close_group("head")
    assert page.box_of("relu") is None
    page.inspector.open_group("head")
    assert page.box_of("relu")
    with pytest.raises(ValueError, match="no group"):
        page.inspector.open_group("tail")


def test_what_was_closed_by_hand_stays_closed_when_the_graph_changes(page: Page):
    page.sends({"type": "close", "path": "stem"})
    page.switches(MUL_TO_ADD, True)
    assert page.box_of("stem_conv") is None


def test_a_group_that_was_opened_for_a_pass_closes_with_it(page: Page):
    page.sends({"type": "close", "path": "head"})
    page.switches(MUL_TO_ADD, True)
    assert page.box_of("mul")
    page.switches(MUL_TO_ADD, False)
    assert page.box_of("mul") is None


def test_what_a_pass_changed_is_uncovered_again_if_that_is_asked_for(page: Page):
    page.switches(MUL_TO_ADD, True)
    page.sends({"type": "close", "path": "head"})
    focus, _ = page.sends({"type": "reveal-pass", "signature": MUL_TO_ADD.signature})
    assert focus["boxes"] == [page.box_of("mul")]


def test_the_overview_shows_what_the_first_picture_showed(page: Page):
    first = page.inspector._shown_picture
    page.sends({"type": "close", "path": "head"})
    page.sends({"type": "close", "path": "stem"})
    assert page.inspector._shown_picture != first
    page.sends({"type": "overview"})
    assert page.inspector._shown_picture == first


def test_nodes_are_found_by_any_of_their_words(page: Page):
    found, done = page.sends({"type": "search", "query": "linear", "request": "page-1"})
    assert (found["type"], found["request"]) == ("found", "page-1")
    assert {result["name"] for result in found["results"]} >= {"head_query", "head_key"}
    assert found["total"] == len(found["results"])
    assert done == {"type": "done"}


def test_a_search_sees_the_graph_as_it_is_now(page: Page, session: Session):
    def names():
        found, _ = page.sends({"type": "search", "query": "changed", "request": "1"})
        return {result["name"] for result in found["results"]}

    assert names() == set()
    session.apply(MUL_TO_ADD)
    assert names() == {"mul"}


def test_the_view_is_exported_as_dot(page: Page):
    page.sends({"type": "close", "path": "head"})
    dot, _ = page.sends({"type": "export-dot", "request": "page-2"})
    assert (dot["type"], dot["request"]) == ("dot", "page-2")
    assert dot["text"].startswith("digraph")
    assert "relu" not in dot["text"], "only what is shown"


def test_the_view_is_exported_as_pdf(page: Page):
    pdf, _ = page.sends({"type": "export-pdf", "request": "page-3"})
    assert pdf == {"type": "pdf", "request": "page-3"}
    (data,) = page.buffers
    assert data.startswith(b"%PDF-1.")
    assert data.rstrip().endswith(b"%%EOF")
    assert b"/Type /Catalog" in data
    table = int(data[data.rindex(b"startxref") :].split()[1])
    assert data[table : table + 4] == b"xref"
    assert page.inspector._shown_status == {"busy": None, "error": None}


def test_the_colours_are_exported_with_the_view(page: Page):
    plain = page.inspector.svg
    page.sends({"type": "show-overlay", "name": "parameters"})
    dot, _ = page.sends({"type": "export-dot", "request": "1"})
    assert ">Parameters<" in dot["text"]
    assert ">Parameters</text>" in page.inspector.svg
    assert ">Parameters</text>" in page.inspector._repr_mimebundle_()[0]["image/svg+xml"]
    assert ">Parameters</text>" not in page.inspector._shown_picture["svg"], "the page paints by itself"
    page.sends({"type": "show-overlay", "name": ""})
    assert page.inspector.svg == plain


def test_what_cannot_be_answered_is_said_among_the_results(page: Page):
    found, _ = page.sends({"type": "search", "query": "inputs:nobody", "request": "1"})
    assert (found["results"], found["nodes"]) == ([], 0)
    assert found["message"] == 'There is no node "nobody".'
    assert page.error is None


def lit(page: Page) -> dict[str | None, int]:
    """Return the names of the boxes that are lit up, and how much is found in them."""
    boxes = page.inspector._shown_picture["boxes"]
    return {
        boxes[id]["node"] or boxes[id]["path"]: count
        for id, count in page.inspector._shown_found["boxes"].items()
    }


def test_what_a_query_finds_is_lit_up_until_that_is_ended(page: Page):
    page.sends({"type": "close", "path": "head"})
    focus, _ = page.sends({"type": "filter", "query": "class:Linear"})
    assert lit(page) == {"head_query": 1, "head_key": 1}
    assert focus["boxes"] == [page.box_of("head_query"), page.box_of("head_key")]
    assert (page.inspector._shown_found["count"], page.inspector._shown_found["message"]) == (2, "")
    page.sends({"type": "filter", "query": ""})
    assert page.inspector._shown_found == {}
    assert page.box_of("head_query") is None, "what was opened for it closes again"


def test_a_closed_group_says_how_much_of_it_is_found(page: Page):
    page.sends({"type": "filter", "query": "module:head"})
    page.sends({"type": "close", "path": "head"})
    assert lit(page) == {"head": page.inspector._shown_found["count"]}
    page.sends({"type": "open", "path": "head"})
    assert sum(lit(page).values()) == page.inspector._shown_found["count"] == len(lit(page))


def test_a_filter_follows_the_graph(page: Page):
    page.sends({"type": "filter", "query": "by:merge-linears"})
    assert (page.inspector._shown_found["count"], lit(page)) == (0, {})
    page.switches(MERGE, True)
    (merged,) = lit(page)
    page.sends({"type": "filter", "query": f"inputs:{merged}"})
    assert page.inspector._shown_found["count"] > 0
    page.switches(MERGE, False)
    assert page.inspector._shown_found["message"].startswith(f'There is no node "{merged}".')
    assert page.error is None
    page.switches(MERGE, True)
    assert page.inspector._shown_found["message"] == ""


def test_a_filter_lights_up_both_stages_side_by_side(page: Page):
    page.switches(MERGE, True)
    page.inspector.show_stage(1, "original", beside=True)
    page.sends({"type": "filter", "query": "by:merge-linears"})
    assert len(page.inspector._shown_found["boxes"]) == 1
    assert page.inspector._shown_found["before"] == {}
    page.sends({"type": "filter", "query": "op:call_module class:Linear"})
    assert len(page.inspector._shown_found["boxes"]) == 1
    assert len(page.inspector._shown_found["before"]) == 2
    focus, _ = page.sends({"type": "filter", "query": "path:head_key..head_key op:call_module"})
    assert focus["before"], "it is gone from the stage that is shown"
    assert page.inspector._shown_found["count"] == 0


def test_nodes_are_lit_up_from_python(page: Page):
    page.inspector.filter("op:call_module class:Linear")
    assert set(lit(page)) == {"head_query", "head_key"}
    before = page.inspector._shown_found
    with pytest.raises(ValueError, match='no node "nobody"'):
        page.inspector.filter("inputs:nobody")
    with pytest.raises(TypeError, match="a str or None, got 3"):
        page.inspector.filter(3)
    assert page.inspector._shown_found == before
    page.inspector.filter(None)
    assert page.inspector._shown_found == {}


def test_groups_are_opened_for_what_is_found_within_a_budget(page: Page, monkeypatch: pytest.MonkeyPatch):
    page.sends({"type": "close", "path": "head"})
    monkeypatch.setattr("fxlab.view_model.graph_view.scene.REVEAL_BUDGET", 1)
    page.sends({"type": "filter", "query": "module:head"})
    assert set(lit(page)) == {"head"}


@pytest.mark.parametrize("query", ["opp:x", '"', "path:", "<b>", "x" * 20_000, "\0", "[", "("])
def test_no_query_is_an_error(page: Page, query):
    page.sends({"type": "search", "query": query, "request": "1"})
    page.sends({"type": "filter", "query": query})
    assert page.error is None
