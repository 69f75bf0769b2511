"""One rewrite of a pass is taken back on the screen, and made again."""

from __future__ import annotations

import pytest
import torch
from inspected import FUSE, MERGE, MUL_TO_ADD, Page
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, RemoveDeadCode, Session, Transformation
from fxlab.notebook.inspector import Inspector


class Divisions(nn.Module):
    def forward(self, x):
        x.cos().sin()
        return ((x / 3 + 1) / 5).relu() / 7


def card(page: Page, position: int = 0) -> dict:
    page.looks_for_candidates()
    return page.inspector._shown_passes["passes"][position]


def limit(page: Page, kind: str, node: str, position: int = 0) -> None:
    page.sends({"type": kind, "signature": card(page, position)["signature"], "node": node})


@pytest.fixture
def divisions():
    session = Session(
        fx.symbolic_trace(Divisions()),
        torch.randn(4),
        passes=[ChangeTrueDivToMulByInverse(), RemoveDeadCode()],
    )
    inspector = Inspector(session)
    yield Page(inspector)
    inspector.close()


def merged(page: Page) -> str:
    page.switches(MERGE, True)
    (node,) = page.inspector.session.passes[1].get_transformed_nodes(page.inspector.session.graph_module)
    return str(node.name)


def test_a_changed_node_offers_to_take_its_rewrite_back(page: Page):
    name = merged(page)
    assert page.details(name)["rewrites"] == [{"signature": MERGE.signature, "count": 1, "isExcluded": False}]
    assert page.details("head_query")["rewrites"] == []


def test_a_rewrite_that_is_taken_back_is_offered_where_it_was(page: Page):
    name = merged(page)
    page.inspector.selected = name
    limit(page, "exclude", name, 1)
    assert page.error is None
    assert page.inspector.selected == "head_query"
    (offered,) = page.details("head_query")["rewrites"]
    assert offered == {"signature": card(page, 1)["signature"], "count": 1, "isExcluded": True}
    assert page.marked() == {}
    limit(page, "include", "head_query", 1)
    assert page.inspector.selected == name
    assert card(page, 1)["signature"] == MERGE.signature
    assert page.inspector._shown_status["busy"] is None


def test_the_card_keeps_its_place_and_counts_what_is_left(divisions: Page):
    divisions.inspector.toggle("change-true-div-to-mul-by-inverse")
    before = card(divisions)
    assert before["changes"] == "3 rewrites: 3 truedivs become 3 muls"
    assert (before["excluded"], before["canExclude"]) == (0, True)
    limit(divisions, "exclude", "truediv")
    after = card(divisions)
    assert (after["name"], after["on"], after["excluded"]) == (before["name"], True, 1)
    assert after["changes"] == "2 rewrites: 2 truedivs become 2 muls"
    assert (after["matched"], after["refused"]) == (2, 0)
    (reason,) = [reason for reason in after["reasons"] if reason["kind"] == "excluded"]
    assert (reason["reason"], reason["nodes"]) == ("excluded on request", ["truediv"])
    assert set(divisions.marked()) == {"truediv_1", "truediv_2"}
    assert divisions.marked()["truediv_1"] == [after["signature"]]
    assert after["arguments"] == []
    assert divisions.inspector._shown_tables["nodes"]["table"]["rows"][0][:2] == ["truediv_1", before["name"]]


def test_it_is_undone_and_redone_as_any_change(divisions: Page):
    divisions.inspector.toggle("change-true-div-to-mul-by-inverse")
    limit(divisions, "exclude", "truediv")
    divisions.sends({"type": "undo"})
    assert card(divisions)["excluded"] == 0
    assert set(divisions.marked()) == {"truediv", "truediv_1", "truediv_2"}
    divisions.sends({"type": "redo"})
    assert set(divisions.marked()) == {"truediv_1", "truediv_2"}


def test_candidates_of_a_pass_that_is_off_or_marks_nothing_are_left_out_by_name(divisions: Page):
    limit(divisions, "exclude", "truediv_2")
    divisions.inspector.toggle("remove-dead-code")
    assert card(divisions, 1)["changes"] == "2 rewrites: 1 cos and 1 sin removed"
    limit(divisions, "exclude", "sin", 1)
    assert divisions.details("sin")["rewrites"][0]["isExcluded"]
    assert divisions.details("cos")["rewrites"] == []
    divisions.inspector.toggle("change-true-div-to-mul-by-inverse")
    assert set(divisions.marked()) == {"truediv", "truediv_1"}


@pytest.mark.parametrize("kind", ["exclude", "include"])
def test_nonsense_is_named_on_the_card_and_changes_nothing(page: Page, kind: str):
    name = merged(page)
    limit(page, kind, "no_such_node", 1)
    assert "'no_such_node'" in page.error["text"]
    assert "'no_such_node'" in card(page, 1)["error"]["text"]
    assert set(page.marked()) == {name}
    page.sends({"type": kind, "signature": "no such pass", "node": "x"})
    assert "no pass with the signature" in page.error["text"]


def test_passes_that_cannot_be_limited_say_so(page: Page):
    page.switches(MUL_TO_ADD, True)
    assert not card(page, 2)["canExclude"]
    assert page.details("mul")["rewrites"] == []
    limit(page, "exclude", "mul", 2)
    assert "cannot be limited" in page.error["text"]
    assert page.card(FUSE)["canExclude"]


def test_a_pass_above_that_needs_the_rewrite_keeps_it(divisions: Page):
    class NeedsMultiplication(Transformation):
        def transform(self, graph_module):
            if not any("mul" in str(node.target) for node in graph_module.graph.nodes):
                raise RuntimeError("nothing is multiplied")
            return graph_module

    divisions.inspector.session.add(NeedsMultiplication())
    divisions.inspector.toggle("change-true-div-to-mul-by-inverse")
    divisions.inspector.toggle("needs-multiplication")
    for name in ("truediv", "truediv_1"):
        limit(divisions, "exclude", name)
    assert divisions.error is None
    limit(divisions, "exclude", "truediv_2")
    assert "nothing is multiplied" in card(divisions)["error"]["text"]
    assert set(divisions.marked()) == {"truediv_2"}


def test_the_rewrites_of_a_pass_are_shown_one_by_one(divisions: Page):
    page = divisions
    assert card(page)["steps"] == 0
    page.sends({"type": "toggle", "signature": card(page)["signature"], "on": True})
    assert card(page)["steps"] == 3
    signature = card(page)["signature"]
    second = page.asks({"type": "rewrite", "signature": signature, "number": 2})
    assert (second["number"], second["total"], second["stage"]) == (2, 3, 1)
    assert second["before"] == ["truediv_1 = operator.truediv(add, 5)"]
    assert second["roles"] == {"truediv_1": "picked"}
    page.sends({"type": "exclude", "signature": signature, "node": second["node"]})
    again = page.asks({"type": "rewrite", "signature": card(page)["signature"], "number": 2})
    assert again["isExcluded"]
    assert again["after"] == []
    page.sends({"type": "apply-up-to", "signature": card(page)["signature"], "count": 1})
    assert page.error is None
    assert (card(page)["excluded"], card(page)["steps"]) == (2, 3)


def test_rewrites_of_a_pass_that_is_off_are_an_error_in_words(divisions: Page):
    page = divisions
    page.sends({"type": "rewrite", "signature": card(page)["signature"], "number": 1, "request": "r"})
    assert page.error is not None
    assert "is off" in page.error["text"]


class RaisesAtRelu(Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.target == "relu":
                raise KeyError("no rule")
        return graph_module


def test_a_pass_that_raises_leads_to_the_node_at_hand(divisions: Page):
    page, raises = divisions, RaisesAtRelu()
    page.inspector.session.add(raises)
    page.switches(raises, True)
    error = page.card(raises)["error"]
    assert (error["node"], error["stage"], error["code"]) == ("relu", 0, 'raise KeyError("no rule")')
    assert page.inspector.selected == "relu"
