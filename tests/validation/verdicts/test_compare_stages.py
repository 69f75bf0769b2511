"""What each pass has done, in a row."""

from __future__ import annotations

import operator

import pytest
import torch
from planted import traced
from torch import fx, nn

import fxlab
from fxlab import MergeLinears, RemoveDeadCode, Session, Transformation, compare_stages, from_callable
from fxlab.validation.verdicts import runs


def adds_one(graph_module: fx.GraphModule) -> None:
    (output,) = graph_module.graph.find_nodes(op="output")
    with graph_module.graph.inserting_before(output):
        new = graph_module.graph.call_function(operator.add, (output.args[0], 1))
    output.args = (new,)


def session_of(inputs: object, *passes: Transformation) -> Session:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    session = Session(fx.symbolic_trace(layers), inputs, passes=passes)  # type: ignore[arg-type]
    for p in passes:
        session.apply(p)
    return session


def test_each_row_says_what_its_pass_has_changed():
    graph, inputs = traced("bert")
    passes = [MergeLinears(), RemoveDeadCode()]
    session = Session(graph, inputs, passes=passes)
    for p in passes:
        session.apply(p)
    table = compare_stages(session)
    assert list(table.index) == ["original", "merge-linears", "remove-dead-code"]
    assert table["nodes"].tolist() == [len(stage.graph.nodes) for stage in session.stages]
    assert table["changes"].tolist() == ["", *(str(session.changes(p)) for p in passes)]
    last = fxlab.compare_outputs(session.original, session.graph_module, session.inputs)
    assert table["max_abs_diff"].iloc[-1] == last["max_abs_diff"].max()
    assert table["status"].iloc[0] == "same bits"
    assert table["status"].iloc[-1] == session.verdict().status
    assert table["parameters"].iloc[0] == sum(p.numel() for p in graph.parameters())


def test_the_stage_that_goes_wrong_is_seen():
    table = compare_stages(session_of(torch.ones(1, 3), RemoveDeadCode(), from_callable(adds_one)))
    assert table["status"].tolist() == ["same bits", "same bits", "different"]
    assert table["max_abs_diff"].tolist() == pytest.approx([0, 0, 1])


def test_what_is_not_compared_says_why():
    for session, words in (
        (session_of(None), "no inputs"),
        (session_of(torch.ones(1, 7)), "does not run on these inputs"),
    ):
        table = compare_stages(session)
        assert table["status"].tolist() == [None]
        assert table["max_abs_diff"].isna().all()
        assert words in table["note"].iloc[0]
    meta = fx.symbolic_trace(nn.Linear(3, 3, device="meta"))
    assert "no weights" in compare_stages(Session(meta, torch.ones(1, 3), passes=[]))["note"].iloc[0]


def test_a_stage_that_does_not_run_is_one_that_is_not_compared():
    def breaks(graph_module: fx.GraphModule) -> None:
        for node in graph_module.graph.find_nodes(op="call_module", target="1"):
            node.op, node.target = "call_function", torch.stack

    table = compare_stages(session_of(torch.ones(1, 3), from_callable(breaks)))
    assert table["status"].tolist() == ["same bits", None]
    assert "does not run" in table["note"].iloc[1]


def test_outputs_of_another_shape_are_noted():
    def sums(graph_module: fx.GraphModule) -> None:
        (output,) = graph_module.graph.find_nodes(op="output")
        with graph_module.graph.inserting_before(output):
            output.args = (graph_module.graph.call_function(torch.sum, (output.args[0],)),)

    table = compare_stages(session_of(torch.ones(1, 3), from_callable(sums)))
    assert table["status"].tolist() == ["same bits", "different"]
    assert "shapes differ" in table["note"].iloc[1]


def test_what_is_no_session_is_refused():
    with pytest.raises(TypeError, match=r"expected an fxlab\.Session, got 3"):
        compare_stages(3)  # type: ignore[arg-type]


def test_what_a_session_remembers_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(torch.ones(2, 3), MergeLinears(), RemoveDeadCode())
    expected = compare_stages(session).astype(str)
    session.verdict()
    run, count = runs.observed, []
    monkeypatch.setattr(runs, "observed", lambda *given, **how: count.append(given) or run(*given, **how))
    assert compare_stages(session).astype(str).equals(expected)
    # The stages below the last; as what they are compared with, the original has run.
    assert len(count) == 2
