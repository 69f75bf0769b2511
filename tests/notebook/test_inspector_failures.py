"""Whatever goes wrong becomes words on the screen, and the session is as it was."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch
from inspected import (
    FUSE,
    MERGE,
    MUL_TO_ADD,
    RAISE,
    ChangeNothing,
    Model,
    MulToAdd,
    Page,
    RaiseMidway,
    make_session,
    state_of,
)
from torch import fx

from fxlab import Session
from fxlab.drawing import LayoutError
from fxlab.notebook import screen
from fxlab.notebook.inspector import Inspector
from fxlab.session.internals import Internals
from fxlab.view_model import pass_state, session_state


class Explosive(Exception):
    def __str__(self) -> str:
        raise ValueError("not even words")


def test_a_pass_that_raises_midway_says_so_at_its_card_and_changes_nothing(page: Page, session: Session):
    page.switches(MERGE, True)
    before, shown = state_of(session), (page.number, page.marked(), page.inspector._shown_stages)
    page.switches(RAISE, True)
    assert state_of(session) == before
    assert (page.number, page.marked(), page.inspector._shown_stages) == shown
    assert not page.card(RAISE)["on"]
    shown_error = page.card(RAISE)["error"]
    assert shown_error["text"] == "KeyError: 'no such layer'"
    assert shown_error["code"] == "raise self._error"
    assert shown_error["place"].startswith("inspected.py:")
    # Said once: the banner only leads to the card.
    assert page.error["title"] == "Applying Raise midway failed"
    assert "no such layer" not in page.error["text"]
    assert "no such layer" not in page.card(RAISE)["note"]
    assert page.inspector._shown_status["busy"] is None


def test_an_error_goes_from_the_card_once_the_pass_is_on(page: Page, session: Session, monkeypatch):
    page.switches(RAISE, True)
    assert page.card(RAISE)["error"]
    with monkeypatch.context() as patch:
        patch.setattr(RaiseMidway, "transform", lambda self, graph_module: graph_module)
        session.apply(RAISE)
    assert page.card(RAISE)["on"]
    assert page.card(RAISE)["error"] is None


def test_a_pass_above_that_fails_without_the_one_below_keeps_both_on():
    class NeedsMul(MulToAdd):
        def transform(self, graph_module):
            if not graph_module.graph.find_nodes(op="call_module", target="stem.norm"):
                raise LookupError("there is no norm any more")
            return graph_module

    class RemoveNorm(RaiseMidway):
        def transform(self, graph_module):
            try:
                super().transform(graph_module)
            except KeyError:
                return graph_module

    below, above = RemoveNorm(), NeedsMul()
    page = Page(Inspector(make_session(below, above)))
    page.switches(above, True)
    page.switches(below, True)
    words = page.card(below)["error"]["text"]
    assert words == "Needs mul failed on what is left below it. LookupError: there is no norm any more"
    assert (page.card(below)["on"], page.card(above)["on"]) == (False, True)


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), Explosive(), MemoryError("no room"), RecursionError(), SystemExit(2)],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_pass_raises_the_session_is_as_it_was(error):
    p = RaiseMidway(error)
    session = make_session(MERGE, p)
    page = Page(Inspector(session))
    page.switches(MERGE, True)
    before = state_of(session)
    answers = page.switches(p, True)
    assert answers[-1] == {"type": "done"}
    assert state_of(session) == before
    assert page.error["text"]
    assert page.inspector._shown_status["busy"] is None
    page.switches(MERGE, False)
    assert not session.applied


def test_a_pass_that_exits_is_told_at_its_card_and_others_show_their_candidates():
    class Exits(RaiseMidway):
        def explain(self, graph_module):
            raise SystemExit(4)

    p = Exits(SystemExit(2))
    page = Page(Inspector(make_session(MERGE, p)))
    page.sends({"type": "candidates"})
    assert page.card(p)["note"].startswith("Its candidates are unknown: 4 (")
    assert page.card(MERGE)["reasons"]
    page.switches(p, True)
    assert page.card(p)["error"]["text"] == "SystemExit: 2"
    p.transform = lambda graph_module: graph_module
    page.switches(p, True)
    assert page.card(p)["on"]
    assert page.error is None


def test_an_error_of_a_million_letters_is_cut_off_wherever_it_is_shown():
    p = RaiseMidway(ValueError("x" * 1_000_000))
    page = Page(Inspector(make_session(p)))
    page.switches(p, True)
    shown = page.card(p)["error"]
    assert shown["text"].startswith("ValueError: xxx")
    assert shown["traceback"]
    assert len(json.dumps(shown)) < 50_000


@pytest.mark.parametrize(("owner", "step"), [(screen, "pass_states"), (session_state, "changed_nodes_state")])
def test_an_interruption_of_the_screen_leaves_the_switches_true(
    page: Page, session: Session, monkeypatch, owner, step
):
    def interrupt(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, interrupt)
        page.switches(MERGE, True)
    assert session.applied == (MERGE,)
    assert page.card(MERGE)["on"]
    assert page.inspector._shown_passes["canUndo"]
    assert page.error["title"] == "Interrupted"
    assert "as it was" not in page.error["text"], "the pass is on"
    page.sends({"type": "refresh"})
    assert page.error is None
    assert page.outputs["state"] == "ready"
    assert page.marked()


def test_an_interrupted_comparison_can_be_made_again(page: Page, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Internals, "compare_outputs", interrupt)
        page.switches(MERGE, True)
        assert page.outputs["text"] == "The comparison was interrupted."
    page.sends({"type": "refresh"})
    assert page.outputs["agrees"]


def test_without_graphviz_the_page_gets_the_graph_and_lays_it_out_itself(session: Session, monkeypatch):
    def too_slow(dot, *rest):
        raise LayoutError("The layout took longer than 30 s.")

    with monkeypatch.context() as patch:
        for module in ("fxlab.view_model.graph_data.graph_data", "fxlab.notebook.screen"):
            patch.setattr(f"{module}.lay_out", too_slow)
        page = Page(Inspector(session))
        assert page.error is None
        assert page.data.layouts == {}
        assert "mul" in page.names()
        assert page.asks({"type": "file", "suffix": "pdf"}) is None
    assert (page.error["title"], page.error["text"]) == (
        "Exporting the graph failed",
        "The layout took longer than 30 s.",
    )


def test_a_pass_that_cannot_explain_itself_is_quoted_and_can_be_switched():
    class CannotExplain(ChangeNothing):
        def explain(self, graph_module):
            raise ZeroDivisionError("division by zero")

    p = CannotExplain()
    page = Page(Inspector(make_session(p)))
    assert "division by zero" in page.card(p)["note"]
    page.switches(p, True)
    assert page.card(p)["on"]


@pytest.mark.parametrize(
    "explained",
    [
        None,
        "words",
        [("mul", True, "")],
        pd.DataFrame({"name": ["mul"]}),
        pd.DataFrame({"node": ["mul"], "matched": [True]}),
        pd.DataFrame({"node": ["mul"], "matched": [True], "reason": ["a column"]}),
        pd.DataFrame({"matched": [None, "yes"], "reason": [None, 3]}, index=[1, None]),
    ],
    ids=["None", "str", "list", "other columns", "no reason", "no index", "odd values"],
)
def test_a_pass_that_explains_itself_in_another_form_does_not_take_the_screen_down(explained):
    class ExplainOddly(ChangeNothing):
        def explain(self, graph_module):
            return explained

    p = ExplainOddly()
    page = Page(Inspector(make_session(p, MERGE)))
    assert page.details("mul")["arguments"]
    assert page.error is None
    page.switches(MERGE, True)
    assert page.card(MERGE)["on"]


def test_a_model_without_weights_says_so_in_the_table():
    with torch.device("meta"):
        model = Model().eval()
    page = Page(
        Inspector(
            Session(fx.symbolic_trace(model), (torch.ones(2, 3, 6, 6, device="meta"),), passes=[FUSE, MERGE])
        )
    )
    page.switches(MERGE, True)
    assert page.card(MERGE)["on"]
    assert page.marked()
    assert page.outputs["state"] == "none"
    assert "meta device" in page.outputs["text"]
    assert page.details("stem_conv")["parameters"]
    assert page.error is None


def test_a_model_that_raises_says_so_in_the_table():
    session = Session(fx.symbolic_trace(Model().eval()), (torch.ones(2, 99, 6, 6),), passes=[MERGE])
    page = Page(Inspector(session))
    page.switches(MERGE, True)
    assert page.outputs["state"] == "failed"
    assert "99 channels" in page.outputs["text"]


def test_an_error_without_words_is_named_after_its_type():
    assert pass_state.describe_error(RecursionError()) == "RecursionError"
    assert pass_state.describe_error(Explosive()) == "Explosive"


def test_listeners_after_the_inspector_hear_of_a_change_although_the_screen_failed(
    page: Page, session: Session, monkeypatch
):
    heard = []
    session.on_change(lambda changed: heard.append(changed.applied))
    monkeypatch.setattr(screen, "pass_states", lambda *_: 1 / 0)
    session.apply(MUL_TO_ADD)
    assert heard == [(MUL_TO_ADD,)]
    assert page.error["text"] == "division by zero"
