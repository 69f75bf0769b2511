"""Tables that are made when somebody asks for them."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, Page
from torch import fx, nn

from fxlab import Session
from fxlab.notebook import measuring
from fxlab.notebook.inspector import Inspector
from fxlab.view_model.measurements import MEASUREMENTS

NOT_OF_ALL = ("data", "worst-batches", "collectives")
NAMES = [measurement.name for measurement in MEASUREMENTS if measurement.name not in NOT_OF_ALL]


def shown(page: Page, name: str) -> dict:
    return next(state for state in page.inspector._shown_measured if state["name"] == name)


def measured(page: Page, name: str) -> dict:
    page.sends({"type": "measure", "name": name})
    assert page.error is None
    assert page.inspector._shown_status["busy"] is None
    assert shown(page, name)["state"] == "ready"
    return shown(page, name)


def column(state: dict, name: str) -> dict:
    position = [column["name"] for column in state["table"]["columns"]].index(name)
    return {row[0]: row[position] for row in state["table"]["rows"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_table_is_made_of_the_original_and_of_what_is_on(page: Page, name: str):
    for p in (None, MERGE):
        if p is not None:
            page.switches(p, True)
        state = measured(page, name)
        assert len(state["table"]["rows"]) == state["table"]["total"]
        json.dumps(page.inspector._shown_measured, allow_nan=False)


def test_the_words_on_a_graph_count_its_nodes(page: Page):
    assert measured(page, "graph-difference")["text"] == "The graph is identical to the original's."
    page.switches(FUSE, True)
    text, table = (measured(page, "graph-difference")[key] for key in ("text", "table"))
    assert text.startswith(f"{table['total']} nodes differ from the original's: ")
    assert table["total"] > 1


def test_the_first_node_that_goes_wrong_is_named(page: Page):
    page.switches(FUSE, True)
    assert measured(page, "node-differences")["text"] == "No node differs by more than rounding."
    page.switches(MUL_TO_ADD, True)
    state = measured(page, "node-differences")
    assert state["text"].startswith("The first wrong node is mul: a different function")
    introduced = column(state, "introduced")
    assert introduced["mul"] > 0.1
    assert introduced["relu"] == 0
    kinds = {column["name"]: column["kind"] for column in state["table"]["columns"]}
    assert (kinds["accumulated"], kinds["shape"]) == ("error", "shape")


@pytest.mark.slow
def test_rows_lead_to_nodes_that_the_graph_has(page: Page):
    page.switches(FUSE, True)
    state = measured(page, "graph-difference")
    assert column(state, "change")["stem_norm"] == "removed"
    assert state["table"]["unlinked"] == ["stem_norm"]
    assert measured(page, "node-cost")["table"]["unlinked"] == []
    speed = measured(page, "speed")
    assert speed["table"]["unlinked"] == ["original", FUSE.name]
    assert speed["text"].startswith(f"{FUSE.name}: ")


def test_what_was_measured_goes_when_a_switch_is_flipped(page: Page):
    measured(page, "graph-difference")
    page.switches(MERGE, True)
    assert shown(page, "graph-difference")["table"] is None
    assert shown(page, "graph-difference")["state"] == "none"


def test_a_failure_is_said_in_its_tab_and_nowhere_else():
    page = Page(Inspector(Session(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))))
    page.sends({"type": "measure", "name": "node-cost"})
    state = shown(page, "node-cost")
    assert state["state"] == "failed"
    assert "inputs" in state["text"]
    assert page.error is None
    assert shown(page, "speed")["state"] == "none"


def stopped_by(raising):
    def make(session):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt came before")

    def make_and_hide(session):
        try:
            make(session)
        except KeyboardInterrupt:
            raise RuntimeError("a callback raised") from None

    return make if raising is KeyboardInterrupt else make_and_hide


@pytest.mark.parametrize("raising", [KeyboardInterrupt, RuntimeError])
def test_a_cancelled_measurement_says_so_and_can_be_made_again(page: Page, monkeypatch, raising):
    speed = next(measurement for measurement in MEASUREMENTS if measurement.name == "speed")
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "MEASUREMENTS", (replace(speed, make=stopped_by(raising)),))
        for _ in range(2):
            assert page.sends({"type": "measure", "name": "speed"}) == [{"type": "done"}]
            assert shown(page, "speed")["state"] == "none"
            assert shown(page, "speed")["text"] == f"Cancelled. {speed.about}"
            assert page.inspector._shown_status == {"busy": None, "error": None}
    assert "Cancelled" not in measured(page, "speed")["text"]


def test_a_measurement_that_failed_before_it_was_cancelled_is_offered_again(page: Page, monkeypatch):
    cost = next(measurement for measurement in MEASUREMENTS if measurement.name == "node-cost")
    for make, state in ((lambda session: 1 / 0, "failed"), (stopped_by(KeyboardInterrupt), "none")):
        monkeypatch.setattr(measuring, "MEASUREMENTS", (replace(cost, make=make),))
        page.sends({"type": "measure", "name": "node-cost"})
        assert shown(page, "node-cost")["state"] == state
    assert "division" not in shown(page, "node-cost")["text"]


def test_a_table_that_there_is_not_is_named(page: Page):
    page.sends({"type": "measure", "name": "<b>"})
    assert "no table '<b>'" in page.error["text"]


def test_the_stages_are_counted_and_compared(page: Page):
    page.switches(MERGE, True)
    page.switches(MUL_TO_ADD, True)
    state = measured(page, "stages")
    names = [row[0] for row in state["table"]["rows"]]
    assert names == ["0. Original", "1. Merge linears", "2. " + names[2][3:]]
    assert state["table"]["leads"] == "stages"
    assert state["table"]["stages"] == {name: number for number, name in enumerate(names)}
    first, *_, last = column(state, "status").values()
    assert (first, last) == ("same bits", "different")
    assert list(column(state, "changes").values()) == [
        "",
        "1 rewrite: 2 linears become 1",
        "1 mul becomes 1 add",
    ]
    kinds = {column["name"]: column["kind"] for column in state["table"]["columns"]}
    assert (kinds["nodes"], kinds["parameters"], kinds["status"]) == ("integer", "integer", "text")


def test_stages_that_cannot_be_run_are_counted(page: Page):
    page.inspector.session.inputs = None
    page.switches(MERGE, True)
    state = measured(page, "stages")
    assert "Outputs are not compared: the session has no inputs" in state["text"]
    assert "status" not in {column["name"] for column in state["table"]["columns"]}
