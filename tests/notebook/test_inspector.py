"""The screen follows its session, and the session follows the switches on the screen."""

from __future__ import annotations

import copy
import gc
import json
import weakref
import xml.etree.ElementTree as ET
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspected import FUSE, MERGE, MUL_TO_ADD, RAISE, MulToAdd, Page, make_session, state_of
from torch import fx, nn

from fxlab import FuseAttention, Session
from fxlab.notebook import Inspector

TRAITS = tuple(
    f"_shown_{name}" for name in ("picture", "passes", "details", "tables", "stages", "overlays", "status")
)


def screen(inspector: Inspector) -> dict[str, object]:
    """Return all that is shown, without the messages of errors."""
    return copy.deepcopy({name: getattr(inspector, name) for name in TRAITS if name != "_shown_status"})


def test_the_first_screen_shows_the_model_as_traced(page: Page):
    inspector = page.inspector
    assert inspector._shown_status == {"busy": None, "error": None}
    assert inspector._shown_details["kind"] == "model"
    assert inspector._shown_tables["outputs"]["state"] == "none"
    assert inspector._shown_tables["nodes"]["table"]["rows"] == []
    assert not page.marked()
    assert page.card(FUSE) | {"on": False, "matched": 1, "changed": 0, "error": ""} == page.card(FUSE)
    assert page.card(MUL_TO_ADD)["matched"] is None, "a pass that does not explain itself claims nothing"


def test_everything_shown_is_plain_json(page: Page):
    page.switches(MERGE, True)
    page.sends({"type": "select-node", "name": "relu", "show": True, "before": False})
    for name in TRAITS:
        json.dumps(getattr(page.inspector, name), allow_nan=False, ensure_ascii=False).encode()


def test_the_picture_is_wellformed_xml_with_an_element_for_each_box(page: Page):
    page.switches(MERGE, True)
    ids = {element.get("id") for element in ET.fromstring(page.inspector.svg).iter()}
    assert set(page.inspector._shown_picture["boxes"]) <= ids
    assert set(page.inspector._shown_picture["edges"]) <= ids


def test_a_switch_on_the_screen_applies_the_pass(page: Page, session: Session):
    page.switches(MUL_TO_ADD, True)
    assert session.applied == (MUL_TO_ADD,)
    assert page.card(MUL_TO_ADD)["on"]
    assert page.card(MUL_TO_ADD)["changed"] == 1
    assert page.marked() == {"mul"}
    assert page.inspector._shown_details["kind"] == "model"
    assert page.inspector._shown_passes["canUndo"]


def test_the_tables_show_what_a_pass_changed_and_that_outputs_differ(page: Page):
    page.switches(MUL_TO_ADD, True)
    tables = page.inspector._shown_tables
    (row,) = tables["nodes"]["table"]["rows"]
    assert row[:2] == ["mul", "Mul to add"]
    assert tables["nodes"]["text"] == "1 node changed or made by Mul to add."
    assert tables["outputs"]["state"] == "ready"
    assert tables["outputs"]["agrees"] is None
    assert "Outputs differ in 1 of 1 tensor" in tables["outputs"]["text"]


def test_outputs_that_differ_agree_only_if_the_verdict_says_so(page: Page):
    page.switches(FUSE, True)
    outputs = page.inspector._shown_tables["outputs"]
    assert (outputs["agrees"], outputs["isSettled"]) == (None, False)
    assert "agree" not in outputs["text"]
    page.sends({"type": "judge"})
    outputs = page.inspector._shown_tables["outputs"]
    assert (outputs["agrees"], outputs["isSettled"]) == (True, True)
    names = [column["name"] for column in outputs["table"]["columns"]]
    assert outputs["table"]["rows"][0][names.index("status")] == "within the model's own rounding"


@pytest.mark.parametrize(
    ("p", "agrees", "words"), [(FUSE, True, "own rounding"), (MUL_TO_ADD, False, "Different")]
)
def test_a_page_can_ask_whether_a_difference_is_rounding(page: Page, p, agrees, words):
    page.switches(p, True)
    assert page.inspector._shown_tables["outputs"]["judgement"] is None
    page.sends({"type": "judge"})
    judgement = page.inspector._shown_tables["outputs"]["judgement"]
    assert judgement["agrees"] is agrees
    assert words in judgement["text"]
    assert page.inspector._shown_tables["outputs"]["table"] is not None
    assert page.inspector._shown_status["busy"] is None
    assert page.error is None


def test_a_question_that_cannot_be_answered_becomes_words_on_the_screen():
    session = Session(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))
    page = Page(Inspector(session))
    page.sends({"type": "judge"})
    assert "the session has no inputs" in page.error["text"]


def test_a_card_has_the_first_paragraph_of_the_docstring_in_plain_words(page: Page, session: Session):
    fuse = FuseAttention()
    session.add(fuse)
    words = "Compute attention by scaled_dot_product_attention, which never stores all probabilities."
    assert page.card(fuse)["description"] == words


def test_the_table_of_changed_nodes_says_what_they_stand_for(page: Page):
    page.switches(MERGE, True)
    table = page.inspector._shown_tables["nodes"]["table"]
    names = [column["name"] for column in table["columns"]]
    assert table["rows"][0][names.index("before")] == "head_query, head_key"
    assert table["rows"][0][names.index("target_before")] == "head.query, head.key"
    assert "shape_before" not in names


def test_what_a_pass_changed_is_brought_into_sight(page: Page):
    page.sends({"type": "close", "path": "head"})
    assert page.box_of("mul") is None
    focus, done = page.switches(MUL_TO_ADD, True)
    assert focus == {"type": "focus", "boxes": [page.box_of("mul")], "gently": True, "before": False}
    assert done == {"type": "done"}


@pytest.mark.parametrize("p", [FUSE, MERGE, MUL_TO_ADD], ids=lambda p: p.name)
def test_a_pass_that_is_switched_off_leaves_the_original_on_the_screen(page: Page, session: Session, p):
    before = screen(page.inspector)
    page.switches(p, True)
    assert screen(page.inspector) != before
    page.switches(p, False)
    assert session.graph_module is session.original
    after = screen(page.inspector)
    assert after["_shown_picture"] == before["_shown_picture"]
    assert after["_shown_tables"] == before["_shown_tables"]
    assert after["_shown_passes"]["passes"] == before["_shown_passes"]["passes"]


def test_switching_on_what_is_on_changes_nothing(page: Page, session: Session):
    page.switches(MERGE, True)
    before = state_of(session)
    assert page.switches(MERGE, True) == [{"type": "done"}]
    assert state_of(session) == before
    assert page.error is None


@pytest.mark.slow
def test_undo_redo_and_reset(page: Page, session: Session):
    page.switches(MERGE, True)
    page.switches(MUL_TO_ADD, True)
    page.sends({"type": "undo"})
    assert session.applied == (MERGE,)
    page.sends({"type": "redo"})
    assert session.applied == (MERGE, MUL_TO_ADD)
    page.sends({"type": "reset"})
    assert session.applied == ()
    assert not page.marked()
    page.sends({"type": "undo"})
    assert session.applied == (MERGE, MUL_TO_ADD)
    assert (page.inspector._shown_passes["canUndo"], page.inspector._shown_passes["canRedo"]) == (True, True)


@pytest.mark.parametrize("kind", ["undo", "redo", "reset"])
def test_there_is_nothing_to_undo_at_first(page: Page, session: Session, kind):
    before = state_of(session)
    assert page.sends({"type": kind}) == [{"type": "done"}]
    assert page.error is None
    assert state_of(session) == before


def test_changes_from_python_are_shown(page: Page, session: Session):
    session.apply(MERGE)
    assert page.card(MERGE)["on"]
    assert page.marked()
    session.undo()
    assert not page.card(MERGE)["on"]
    assert not page.marked()


def test_a_pass_that_is_added_gets_a_card(page: Page, session: Session):
    class AlsoMulToAdd(MulToAdd):
        pass

    session.add(AlsoMulToAdd())
    assert page.inspector._shown_passes["passes"][-1]["className"] == "AlsoMulToAdd"
    page.switches(session.passes[-1], True)
    assert page.marked() == {"mul"}


def test_toggle_takes_names_as_the_session_does(page: Page, session: Session):
    page.inspector.toggle("merge-linears")
    assert session.applied == (MERGE,)
    with pytest.raises(ValueError, match="there is no pass 'no-such-pass'"):
        page.inspector.toggle("no-such-pass")


def test_two_inspectors_of_one_session_follow_each_other(session: Session):
    one, two = Page(Inspector(session)), Page(Inspector(session))
    one.switches(MERGE, True)
    two.switches(MUL_TO_ADD, True)
    assert screen(one.inspector)["_shown_passes"] == screen(two.inspector)["_shown_passes"]
    assert screen(one.inspector)["_shown_tables"] == screen(two.inspector)["_shown_tables"]
    assert one.marked() == two.marked()
    one.sends({"type": "select-node", "name": "relu", "show": True, "before": False})
    assert (one.inspector.selected, two.inspector.selected) == ("relu", None)


def test_a_closed_inspector_does_not_follow_any_more(session: Session):
    closed, other = Inspector(session), Inspector(session)
    closed.close()
    before = closed._shown_passes
    session.apply(MERGE)
    assert closed._shown_passes == before
    assert other._shown_passes != before
    closed.close()


@pytest.mark.slow
def test_an_inspector_is_forgotten_once_it_is_closed(session: Session):
    inspector = Inspector(session)
    reference = weakref.ref(inspector)
    inspector.close()
    del inspector
    gc.collect()
    assert reference() is None
    session.apply(MERGE)


@pytest.mark.slow
def test_an_inspector_keeps_nothing_of_a_session_alive_that_is_gone():
    inspector = Inspector(make_session())
    reference = weakref.ref(inspector.session)
    inspector.close()
    del inspector
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "name",
    [
        "_shown_picture",
        "_shown_passes",
        "_shown_details",
        "_shown_tables",
        "_shown_status",
        "_esm",
        "_css",
        "layout",
        "x",
    ],
)
def test_a_page_cannot_set_what_it_has_to_ask_for(page: Page, name):
    before = copy.deepcopy(page.inspector.get_state())
    page.sets({name: {"svg": "<script>alert(1)</script>", "passes": [], "busy": None, "error": None}})
    assert page.inspector.get_state() == before


def test_a_page_can_set_the_height(page: Page):
    page.sets({"height": 500})
    assert page.inspector.height == 500


@pytest.mark.parametrize("height", [None, "tall", -1, 10**9, 3.5, [500], {"px": 500}, "x" * 10_000])
def test_a_height_that_makes_no_sense_becomes_words_on_the_screen(page: Page, height):
    before = page.inspector.height
    page.sets({"height": height})
    assert page.inspector.height == before
    assert "not allowed" in page.error["title"]


@pytest.mark.parametrize("state", [None, [], "height", 3, [["height", 500]]], ids=repr)
def test_a_state_that_is_no_object_becomes_words_on_the_screen(page: Page, state):
    before = page.inspector.height
    page.sets(state)
    assert page.inspector.height == before
    assert "not allowed" in page.error["title"]


def test_a_package_without_its_front_end_says_so(session: Session, monkeypatch):
    monkeypatch.setattr(Inspector, "_esm", "")
    with pytest.raises(RuntimeError, match=r"front end is missing.*inspector\.js"):
        Inspector(session)


def test_a_notebook_without_a_kernel_still_shows_the_picture(page: Page):
    page.switches(MERGE, True)
    data, _ = page.inspector._repr_mimebundle_()
    assert data["image/svg+xml"] == page.inspector.svg
    assert "<svg " in data["text/html"]
    assert "query_key_merged" in data["text/html"].partition("</svg>")[2], "the table of changed nodes"
    assert data["text/plain"].startswith("<fxlab inspector: Model, ")
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == page.inspector.model_id


toggles = st.builds(
    lambda p, on: {"type": "toggle", "signature": p.signature, "on": on},
    st.sampled_from([FUSE, MERGE, MUL_TO_ADD, RAISE]),
    st.booleans(),
)
simple = st.sampled_from(["undo", "redo", "reset", "refresh", "overview", "clear-selection"]).map(
    lambda kind: {"type": kind}
)
on_groups = st.builds(
    lambda kind, path: {"type": kind, "path": path},
    st.sampled_from(["open", "close"]),
    st.sampled_from(["stem", "head", "mul"]),
)
on_selections = st.builds(
    lambda path, before: {"type": "select-group", "path": path, "before": before},
    st.sampled_from(["stem", "head", "mul"]),
    st.booleans(),
)
on_nodes = st.builds(
    lambda name, show, before: {"type": "select-node", "name": name, "show": show, "before": before},
    st.sampled_from(["mul", "stem_norm", "head_query"]),
    st.booleans(),
    st.booleans(),
)
on_stages = st.builds(
    lambda compared, beside: {"type": "show-stage", "stage": 1, "compared": compared, "beside": beside},
    st.sampled_from(["", "original"]),
    st.booleans(),
)
reveals = st.just({"type": "reveal-pass", "signature": MERGE.signature})
previews = st.one_of(
    st.sampled_from([FUSE, MERGE, RAISE]).map(lambda p: {"type": "preview", "signature": p.signature}),
    st.just({"type": "end-preview"}),
)
anything = toggles | simple | on_groups | on_selections | on_nodes | on_stages | reveals | previews


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(anything, max_size=8))
def test_whatever_is_done_the_screen_shows_the_session(messages):
    page = Page(Inspector(make_session()))
    session = page.inspector.session
    for message in messages:
        assert page.sends(message)[-1] == {"type": "done"}
    on = {card["signature"] for card in page.inspector._shown_passes["passes"] if card["on"]}
    assert on == {p.signature for p in session.applied}
    assert page.inspector._shown_passes["canUndo"] == session.can_undo
    assert page.inspector._shown_status["busy"] is None
    stages = page.inspector._shown_stages
    there = {node.name for node in session.stages[stages["shown"]].graph.nodes}
    if stages["before"] is not None and not stages["beside"]:
        there |= {node.name for node in session.stages[stages["before"]].graph.nodes}
    if stages["preview"]:
        signature = stages["preview"]["signature"]
        there |= {node.name for node in session.preview(signature).graph.nodes}
    boxed = {box["node"] for box in page.inspector._shown_picture["boxes"].values()} - {None}
    assert boxed <= there
    assert bool(page.inspector._shown_before) == stages["beside"]
    shown = [row[0] for row in page.inspector._shown_tables["nodes"]["table"]["rows"]]
    assert shown == list(session.transformed_nodes().index)
    page.inspector.close()


def test_any_stage_can_be_looked_at_alone_or_with_what_changed(page: Page, session: Session):
    page.switches(FUSE, True)
    page.switches(MERGE, True)
    assert page.inspector._shown_stages["shown"] == 2
    page.sends({"type": "show-stage", "stage": 0, "compared": "", "beside": False})
    assert page.inspector._shown_stages["shown"] == 0
    assert page.inspector._shown_details["fields"][0]["value"] == str(len(session.original.graph.nodes))
    assert not page.marked()
    assert session.applied == (FUSE, MERGE), "looking changes nothing"
    page.sends({"type": "show-stage", "stage": 2, "compared": "original", "beside": False})
    picture = page.inspector._shown_picture
    assert picture["compared"]
    assert picture["signatures"] == ["added", "removed", "changed", "rewired"]
    became = {box["node"]: box["marks"] for box in picture["boxes"].values() if box["node"] and box["marks"]}
    assert became["stem_norm"] == [1]
    assert [0] in became.values()
    page.switches(MERGE, False)
    assert page.inspector._shown_stages == {
        "names": ["Original", "Fuse batch norm2d in conv2d"],
        "shown": 1,
        "compared": "",
        "beside": False,
        "before": None,
        "comparisons": [0],
        "preview": None,
    }
    assert page.error is None


def test_a_stage_that_is_not_there_is_named(page: Page):
    page.sends({"type": "show-stage", "stage": 7, "compared": "", "beside": False})
    assert "There is no stage 7" in page.error["text"]
    assert page.inspector._shown_stages["shown"] == 0


def test_the_graph_is_coloured_by_what_nodes_cost(page: Page, session: Session):
    page.sends({"type": "show-overlay", "name": "flops"})
    shown = page.inspector._shown_overlays["overlay"]
    assert shown["title"] == "FLOPs"
    assert set(shown["values"]) <= set(page.inspector._shown_picture["boxes"])
    assert shown["total"] == sum(v for k, v in top_level(page.inspector, shown["values"]))
    page.sends({"type": "close", "path": "head"})
    closed = page.inspector._shown_overlays["overlay"]
    assert closed["total"] == shown["total"] == sum(v for k, v in top_level(page.inspector, closed["values"]))
    page.switches(MERGE, True)
    assert page.inspector._shown_overlays["overlay"]["total"] == shown["total"], (
        "measured anew, the work is the same"
    )
    page.sends({"type": "show-overlay", "name": ""})
    assert page.inspector._shown_overlays["overlay"] is None
    assert page.error is None


def top_level(inspector: Inspector, values: dict[str, Any]) -> list[tuple[str, Any]]:
    boxes = inspector._shown_picture["boxes"]
    return [(k, v) for k, v in values.items() if boxes[k]["kind"] != "cluster"]


def test_the_graph_is_coloured_by_anybodys_values(session: Session):
    inspector = Inspector(session)
    inspector.overlay(pd.Series({"stem_conv": 3, "stem_norm": "x"}, name="<mine>"))
    shown = inspector._shown_overlays["overlay"]
    assert shown["title"] == "<mine>"
    assert "<mine>" in [choice["title"] for choice in inspector._shown_overlays["offered"]]
    assert set(shown["values"].values()) >= {3.0, "x"}
    inspector.overlay(None)
    assert inspector._shown_overlays["overlay"] is None
    with pytest.raises(TypeError, match="got a list"):
        inspector.overlay([1])
    with pytest.raises(ValueError, match="none of the name 'nonsense'"):
        inspector.overlay("nonsense")
    inspector.close()


def test_an_overlay_that_cannot_be_measured_says_why_and_leaves_the_colours(page: Page, monkeypatch):
    page.inspector.session.inputs = None
    page.sends({"type": "show-overlay", "name": "time"})
    assert "no inputs" in page.error["text"]
    assert page.inspector._shown_overlays["overlay"] is None
