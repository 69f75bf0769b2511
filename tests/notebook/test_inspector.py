"""The screen follows its session, and the session follows the switches on the screen."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspected import FUSE, MERGE, MUL_TO_ADD, RAISE, MulToAdd, Page, make_session, state_of
from ipywidgets import Widget
from torch import fx, nn

import fxlab
from fxlab import Session
from fxlab.notebook.inspector import Inspector
from fxlab.notebook.page.view_state import PANELS_AT_FIRST

TRAITS = tuple(
    f"_shown_{name}" for name in ("view", "passes", "tables", "stages", "overlays", "measured", "status")
)


def screen(inspector: Inspector) -> dict[str, object]:
    """Return all that is shown, without the messages of errors."""
    return copy.deepcopy({name: getattr(inspector, name) for name in TRAITS if name != "_shown_status"})


@pytest.mark.parametrize(
    ("p", "agrees", "status"),
    [(FUSE, True, "within the model's own rounding"), (MUL_TO_ADD, False, "different")],
)
def test_a_verdict_has_one_sentence_and_one_look_and_is_none_until_it_is_asked_for(page, p, agrees, status):
    page.switches(p, True)
    outputs = page.outputs
    assert (outputs["agrees"], outputs["canJudge"]) == (None, True)
    assert "agree" not in outputs["text"]
    page.sends({"type": "judge"})
    outputs = page.outputs
    assert (outputs["agrees"], outputs["canJudge"]) == (agrees, False)
    assert outputs["text"].lower().startswith(status)
    assert "compared in output (" in outputs["text"]
    names = [column["name"] for column in outputs["table"]["columns"]]
    assert {row[names.index("status")] for row in outputs["table"]["rows"]} == {status}
    assert page.inspector._shown_status["busy"] is None
    assert page.error is None


def test_a_question_that_cannot_be_answered_becomes_words_on_the_screen():
    session = Session(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))
    page = Page(Inspector(session))
    page.sends({"type": "judge"})
    assert "the session has no inputs" in page.error["text"]


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


def test_a_pass_that_is_added_gets_a_card(page: Page, session: Session):
    class AlsoMulToAdd(MulToAdd):
        pass

    session.add(AlsoMulToAdd())
    assert page.inspector._shown_passes["passes"][-1]["className"] == "AlsoMulToAdd"
    page.switches(session.passes[-1], True)
    assert page.marked() == {"mul": [session.passes[-1].signature]}


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
    one.inspector.selected = "relu"
    one.inspector.close_group("head")
    assert (one.inspector.selected, two.inspector.selected) == ("relu", None)
    assert two.inspector._shown_view["opened"] is None, "each page looks as it likes"


READS = {
    "a trait": lambda inspector: inspector._shown_passes,
    "the saved state": lambda inspector: inspector.get_state(),
    "the picture": lambda inspector: inspector.svg,
    "the stages": lambda inspector: inspector.panes,
    "an action": lambda inspector: inspector.filter("mul"),
    "the output of a cell": lambda inspector: inspector._repr_mimebundle_(),
    "a page": lambda inspector: Page(inspector),
    "a page that has not said where": lambda inspector: inspector._answer({"type": "all-data"}),
    "a view of a page": lambda inspector: inspector.set_state({"height": 500}),
}
"""Ways to see an inspector."""


@pytest.mark.usefixtures("young")
def test_an_inspector_that_no_page_shows_is_refreshed_only_when_it_is_used(session, monkeypatch):
    shown, hidden = Page(Inspector(session)), {name: Inspector(session) for name in READS}
    refreshed, refresh = [], Inspector._refresh
    monkeypatch.setattr(Inspector, "_refresh", lambda self: (refreshed.append(self), refresh(self)))
    (session.revert if MERGE in session.applied else session.apply)(MERGE)
    assert all("merged" in inspector.svg for inspector in hidden.values())
    stage = weakref.ref(session.stages[1])
    del refreshed[:]
    for p in (MUL_TO_ADD, MERGE, FUSE, MUL_TO_ADD, MUL_TO_ADD):
        (session.revert if p in session.applied else session.apply)(p)
    assert refreshed == [shown.inspector] * 5
    gc.collect()
    assert stage() is None, "what nobody sees keeps no stage alive"
    for name, inspector in hidden.items():
        del refreshed[:]
        READS[name](inspector)
        assert refreshed == [inspector], name
        for trait in TRAITS[1:4]:
            assert set(inspector._trait_values[trait]) == set(shown.inspector._trait_values[trait])
        cards = inspector._trait_values["_shown_passes"]["passes"]
        assert [card["on"] for card in cards] == [p in session.applied for p in session.passes]
        assert inspector.svg == shown.inspector.svg


def test_an_inspector_follows_as_long_as_any_place_shows_it(session: Session):
    page = Page(Inspector(session))
    place = {"type": "place", "name": "a window of a browser", "on": True}
    for message in (place, {**place, "on": False}, {**place, "on": False}):
        page.sends(message)
    session.apply(MERGE)
    assert not page.inspector._is_behind, "it is shown where it was at first"
    page.sends({**place, "name": "here", "on": False})
    session.apply(MUL_TO_ADD)
    assert page.inspector._is_behind
    assert page.card(FUSE)["matched"] == 1, "an answer is about the session as it is"
    page.switches(MERGE, False)
    assert not page.inspector._is_behind, "whoever sends messages sees what comes of them"


def test_an_interrupt_of_a_read_leaves_the_inspector_behind(session: Session, monkeypatch):
    inspector = Inspector(session)
    session.apply(MERGE)
    with monkeypatch.context() as patched:
        patched.setattr(inspector, "_show_tables", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            _ = inspector.svg
    assert inspector._shown_tables["outputs"]["state"] == "ready"


def test_a_page_that_asks_beside_a_cell_gets_what_there_was_until_then(session: Session):
    inspector = Inspector(session)
    session.apply(MERGE)
    for action, is_behind in ((inspector.get_state, True), (lambda: inspector.svg, False)):
        beside = threading.Thread(target=action, name="subshell-1")
        beside.start()
        beside.join()
        # A cell may be changing the session; a person who reads in a console asks for the newest.
        assert inspector._is_behind == is_behind


def test_a_closed_inspector_does_not_follow_any_more(session: Session):
    closed, other = Inspector(session), Inspector(session)
    closed.close()
    before = closed._shown_passes
    session.apply(MERGE)
    assert closed._shown_passes == before
    assert other._shown_passes != before
    closed.close()


@pytest.mark.usefixtures("young")
def test_a_session_does_not_keep_an_inspector_alive(session: Session):
    inspector = Inspector(session)
    followed = weakref.ref(inspector)
    # Only out of the registry of ipywidgets, which would hold it.
    Widget.close(inspector)
    del inspector
    gc.collect()
    assert followed() is None, "though it still is subscribed"
    session.apply(MERGE)
    assert session.applied == (MERGE,)


@pytest.mark.usefixtures("young")
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
        "_code",
        "_code_version",
        "_shown_data",
        "_shown_stages",
        "_shown_overlays",
        "_shown_passes",
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
    page.sets({name: {"names": ["<script>alert(1)</script>"], "passes": [], "busy": None, "error": None}})
    assert page.inspector.get_state() == before


def test_the_height_follows_the_window_until_somebody_chooses_one(page: Page):
    assert page.inspector.height is None
    page.sets({"height": 500})
    page.sets({"height": None})
    assert page.inspector.height is None
    assert page.error is None


def test_a_page_keeps_how_its_panels_stand(page: Page):
    chosen = {**PANELS_AT_FIRST, "passes": "folded", "tables": "open", "left": 300.5}
    page.sets({"_shown_panels": chosen})
    assert page.inspector._shown_panels == chosen
    assert page.error is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": "ajar"},
        {"details": None},
        {"tables": ["open"]},
        {"left": -1},
        {"right": 10**9},
        {"bottom": True},
        {"left": "300px"},
        {"more": 1},
    ],
    ids=repr,
)
def test_panels_that_make_no_sense_become_words_on_the_screen(page: Page, wrong):
    page.sets({"_shown_panels": {**PANELS_AT_FIRST, **wrong}})
    assert page.inspector._shown_panels == PANELS_AT_FIRST
    assert "not allowed" in page.error["title"]


@pytest.mark.parametrize("height", ["tall", -1, 10**9, 3.5, [500], {"px": 500}, "x" * 10_000])
def test_a_height_that_makes_no_sense_becomes_words_on_the_screen(page: Page, height):
    before = page.inspector.height
    page.sets({"height": height})
    assert page.inspector.height == before
    assert "not allowed" in page.error["title"]


@pytest.mark.parametrize("height", ["tall", 239, 4001, True, 500.0, float("nan")])
def test_a_height_that_makes_no_sense_is_refused(session: Session, height):
    inspector = Inspector(session, height=500)
    expected = "height: expected None or a whole number of pixels from 240 to 4000, got"
    with pytest.raises(ValueError, match=expected):
        inspector.height = height
    assert inspector.height == 500


@pytest.mark.parametrize("state", [None, [], "height", 3, [["height", 500]]], ids=repr)
def test_a_state_that_is_no_object_becomes_words_on_the_screen(page: Page, state):
    before = page.inspector.height
    page.sets(state)
    assert page.inspector.height == before
    assert "not allowed" in page.error["title"]
    assert f"got {type(state).__name__}" in page.error["text"]


def test_a_package_without_its_front_end_says_so(session: Session, monkeypatch):
    monkeypatch.setattr(Inspector, "_esm", "")
    with pytest.raises(RuntimeError, match=r"front end is missing.*loader\.js"):
        Inspector(session)


toggles = st.builds(
    lambda p, on: {"type": "toggle", "signature": p.signature, "on": on},
    st.sampled_from([FUSE, MERGE, MUL_TO_ADD, RAISE]),
    st.booleans(),
)
simple = st.sampled_from(["undo", "redo", "reset", "refresh", "end-preview"]).map(lambda kind: {"type": kind})
previews = st.sampled_from([FUSE, MERGE, RAISE]).map(lambda p: {"type": "preview", "signature": p.signature})
graphs = st.builds(
    lambda version, stage, before, beside: {
        "type": "graph",
        "version": version,
        "stage": stage,
        "before": before,
        "beside": beside,
    },
    st.integers(1, 6),
    st.integers(0, 2),
    st.none() | st.integers(0, 1),
    st.booleans(),
)
details = st.builds(
    lambda graph, name: {"type": "details", "graph": graph, "kind": "node", "name": name},
    st.integers(0, 3),
    st.sampled_from(["mul", "stem_norm", "head_query"]),
)
overlays = st.builds(
    lambda graph: {"type": "overlay", "graph": graph, "name": "parameters"}, st.integers(0, 3)
)
views = st.fixed_dictionaries(
    {
        "stage": st.none() | st.integers(0, 3),
        "compared": st.sampled_from(["", "below", 0, 1]),
        "beside": st.booleans(),
        "between": st.lists(st.integers(0, 3), max_size=4),
        "opened": st.none() | st.lists(st.sampled_from(["stem", "head", "gone"])),
        "query": st.sampled_from(["", "mul"]),
        "overlay": st.just(""),
        "selected": st.none()
        | st.just({"kind": "node", "name": "stem_norm", "pane": 1})
        | st.just({"kind": "group", "name": "head", "pane": 0}),
        "direction": st.sampled_from(["down", "right"]),
        "shapes": st.booleans(),
        "lines": st.sampled_from(["alike", "dtype", "bytes"]),
        "bookkeeping": st.booleans(),
    }
)
anything = toggles | simple | previews | graphs | details | overlays | views


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(anything, max_size=8))
def test_whatever_is_done_the_screen_shows_the_session(messages):
    page = Page(Inspector(make_session()))
    session = page.inspector.session
    for message in messages:
        if "type" in message:
            assert page.sends(message)[-1] == {"type": "done"}
        else:
            page.sets({"_shown_view": message})
    on = {card["signature"] for card in page.inspector._shown_passes["passes"] if card["on"]}
    assert on == {p.signature for p in session.applied}
    assert page.inspector._shown_passes["canUndo"] == session._internals.can_undo
    assert page.inspector._shown_status["busy"] is None
    stages, data = page.inspector._shown_stages, page.data
    names = [{node.name for node in stage.graph.nodes} for stage in session.stages]
    assert len(stages["names"]) == len(names)
    for stage, number in stages["alone"].items():
        assert set(data.names(number)) == names[int(stage)]
    for both, number in stages["merged"].items():
        after, before = map(int, both.split("/"))
        assert set(data.names(number)) == names[after] | names[before]
    for both, number in stages["pairs"].items():
        after, before = both.split("/")
        pair = data.tables["pairs"][number]
        assert (pair["after"], pair["before"]) == (stages["alone"][after], stages["alone"][before])
    if stages["preview"]:
        (previewed,) = (p for p in session.passes if p.signature == stages["preview"]["signature"])
        there = {node.name for node in session.preview(previewed).graph.nodes}
        assert set(data.names(stages["preview"]["graph"])) == names[-1] | there
    shown = [row[0] for row in page.inspector._shown_tables["nodes"]["table"]["rows"]]
    assert shown == list(
        fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).index
    )
    assert page.inspector.svg.startswith("<svg")
    page.inspector.close()
