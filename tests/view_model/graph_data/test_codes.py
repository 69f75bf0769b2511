"""The code of stages as a page receives it: lazily, and no line twice."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from drawing_models import bert_session
from received import Received
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session
from fxlab.html_report.report import _data
from fxlab.notebook.inspector import Inspector
from fxlab.view_model.graph_data.session_graphs import SessionGraphs

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()
HOSTILE = "</script><b>\u202e\udc00"


@pytest.fixture
def session() -> Session:
    return bert_session(MERGE, DIVIDE)


def lines_of(page: Received, code: int) -> list[tuple[str, list[str]]]:
    """Return the lines of a code and the names of their nodes."""
    ranges = page.tables["codes"][code]["ranges"]
    numbers = [
        n
        for start, length in zip(ranges[::2], ranges[1::2], strict=True)
        for n in range(start, start + length)
    ]
    rows = [page.tables["codeLines"][number] for number in numbers]
    return [(text, [page.tables["texts"][name] for name in names]) for text, *names in rows]


def text_of(page: Received, code: int) -> str:
    return "\n".join(text for text, _ in lines_of(page, code))


def code_of(graph_module: fx.GraphModule) -> str:
    return str(graph_module.code.strip("\n").rstrip())


def applied(page: Received, difference: dict[str, Any]) -> str:
    """Return what a difference makes of the code before."""
    before, after = (lines_of(page, difference[side]) for side in ("before", "after"))
    i = j = 0
    made = []
    for kind, length in difference["runs"]:
        old, new = (0 if kind == "added" else length), (0 if kind == "removed" else length)
        made += before[i : i + old] if kind == "same" else after[j : j + new]
        i, j = i + old, j + new
    assert i == len(before)
    return "\n".join(text for text, _ in made)


def test_a_page_reads_the_code_of_each_stage_and_how_two_differ(session: Session) -> None:
    graphs = SessionGraphs(session)
    for stage, before in ((0, None), (1, 0), (2, 0), (2, 1)):
        graphs.code(stage, before)
    page, state = Received(graphs.data.take()), graphs.state()
    for stage, module in enumerate(session.stages):
        assert text_of(page, state["codes"][str(stage)]) == code_of(module)
    assert set(state["codeDifferences"]) == {"1/0", "2/0", "2/1"}
    for key, number in state["codeDifferences"].items():
        assert applied(page, page.tables["codeDifferences"][number]) == code_of(session.stages[int(key[0])])


def test_lines_are_tied_to_nodes_of_their_stage(session: Session) -> None:
    graphs = SessionGraphs(session)
    graphs.code(2)
    page = Received(graphs.data.take())
    told = [name for _, names in lines_of(page, 0) for name in names]
    assert sorted(set(told)) == sorted(node.name for node in session.graph_module.graph.nodes)
    assert page.tables["codes"][0]["linked"]


def test_a_stage_adds_the_lines_that_no_other_has(session: Session) -> None:
    graphs = SessionGraphs(session)
    graphs.code(1)
    graphs.data.take()
    graphs.code(2)
    new = graphs.data.take()
    assert [text for text, *_ in new["codeLines"]] == [
        line for line in code_of(session.stages[2]).splitlines() if line not in code_of(session.stages[1])
    ]
    assert len(json.dumps(new["codes"])) < 200
    graphs.code(2)
    graphs.code(1)
    assert not any(graphs.data.take().values())


@pytest.mark.usefixtures("young")
def test_code_of_a_stage_that_is_gone_is_let_go(session: Session) -> None:
    graphs = SessionGraphs(session)
    graphs.code(2, 1)
    last = weakref.ref(session.graph_module)
    session.revert(DIVIDE)
    graphs.reset()
    gc.collect()
    assert last() is None
    state = graphs.state()
    assert (set(state["codes"]), state["codeDifferences"]) == ({"1"}, {})


def test_a_preview_has_the_code_that_there_would_be(session: Session) -> None:
    session.revert(DIVIDE)
    graphs = SessionGraphs(session)
    graphs.alone(1)
    graphs.preview(DIVIDE)
    before = graphs.state()["preview"]
    assert "code" not in before
    for _ in range(2):
        graphs.code_of_preview()
        preview = graphs.state()["preview"]
    page = Received(graphs.data.take())
    assert text_of(page, preview["code"]) == code_of(session.preview(DIVIDE))
    difference = page.tables["codeDifferences"][preview["difference"]]
    assert applied(page, difference) == code_of(session.preview(DIVIDE))
    assert set(graphs.state()["codes"]) == {"1"}
    assert graphs.state()["codeDifferences"] == {}


def test_text_of_a_model_can_be_sent_whatever_it_is() -> None:
    root = nn.Module()
    root.add_module(HOSTILE, nn.ReLU())
    graph = fx.Graph()
    graph.output(graph.call_module(HOSTILE, (graph.placeholder("x"), "y" * 100_000)))
    graphs = SessionGraphs(Session(fx.symbolic_trace(nn.Identity())))
    number = graphs.data.codes.add(_Written(root, graph))
    data = graphs.data.take()
    json.dumps(data, allow_nan=False).encode()
    assert number == 0
    assert max(len(text) for text, *_ in data["codeLines"]) < 11_000


class _Written(nn.Module):
    """A graph module that was never compiled: Python would not take this code."""

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__()
        self.root, self.graph, self.meta = root, graph, {}


def test_an_inspector_sends_code_when_it_is_asked_for(session: Session) -> None:
    inspector = Inspector(session)
    assert inspector._shown_stages["codes"] == {}
    version = inspector._shown_stages["version"]
    inspector._answer({"type": "code", "version": version, "stage": 2, "before": 0})
    assert set(inspector._shown_stages["codes"]) == {"0", "2"}
    assert set(inspector._shown_stages["codeDifferences"]) == {"2/0"}
    inspector._answer({"type": "code", "version": version - 1, "stage": 1, "before": None})
    assert set(inspector._shown_stages["codes"]) == {"0", "2"}, "the session has changed meanwhile"
    inspector._answer({"type": "code", "version": version, "stage": 9, "before": None})
    assert "There is no stage 9" in inspector._shown_status["error"]["text"]
    inspector._graphs.preview(DIVIDE)
    inspector._answer({"type": "code", "version": version, "stage": 2, "before": None})
    assert "difference" in inspector._shown_stages["preview"]
    inspector.close()


def test_a_report_has_the_code_of_every_stage_and_the_differences_of_those_it_compares(
    session: Session,
) -> None:
    stages = _data(session, False)["stages"]
    assert set(stages["codes"]) == {"0", "1", "2"}
    assert set(stages["codeDifferences"]) == set(stages["pairs"]) == {"1/0", "2/0", "2/1"}
