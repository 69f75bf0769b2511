"""A function that can only be run to be explained is run when somebody asks for it, never unasked."""

from __future__ import annotations

import torch
from torch import fx

from fxlab import RemoveDeadCode, Session, from_callable, report
from fxlab.notebook.inspector import Inspector
from fxlab.view_model.pass_state import PREVIEW_TELLS, explain, pass_states

CALLS: list[int] = []


def double(graph_module: fx.GraphModule) -> None:
    """Doubles what the model gives, and takes another function."""
    CALLS.append(len(graph_module.graph.nodes))
    output = next(iter(graph_module.graph.find_nodes(op="output")))
    with graph_module.graph.inserting_before(output):
        twice = graph_module.graph.call_function(torch.add, (output.args[0], output.args[0]))
    output.args[0].target = torch.tanh
    output.args = (twice,)


def session_of(*passes) -> Session:
    CALLS.clear()
    return Session(fx.symbolic_trace(lambda x: torch.relu(x)), torch.randn(3, 2), passes=[*passes])


def ask_for_everything(inspector: Inspector) -> None:
    while not inspector._look_for_candidates():
        pass


def test_an_inspector_and_a_report_run_no_pass_that_is_off(tmp_path) -> None:
    session = session_of(from_callable(double), RemoveDeadCode())
    inspector = Inspector(session)
    ask_for_everything(inspector)
    (session.revert if "remove-dead-code" in session.applied else session.apply)("remove-dead-code")
    ask_for_everything(inspector)
    report(session, path=tmp_path / "report.html")
    assert CALLS == []
    assert explain(session, session.passes["double"]) == PREVIEW_TELLS


def test_a_pass_that_is_on_is_run_once_and_its_changes_are_its_candidates() -> None:
    session = session_of(from_callable(double))
    inspector = Inspector(session)
    (session.revert if "double" in session.applied else session.apply)("double")
    ask_for_everything(inspector)
    assert len(CALLS) == 1
    frame = explain(session, session.passes["double"])
    assert frame.index.tolist() == ["relu", "add"]
    assert frame["matched"].all()
    state = pass_states(session, {session.passes[0].signature: frame})[0]
    assert (state["on"], state["matched"], state["refused"]) == (True, 2, 0)


def test_who_asks_is_told() -> None:
    session = session_of(from_callable(double))
    assert session.explain("double").reason.tolist() == ["would be changed"]
    assert len(CALLS) == 1
