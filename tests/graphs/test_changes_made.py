"""What a pass has done, in one sentence that is computed from its journal or from the two graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import fx, nn

from fxlab import (
    ChangeTrueDivToMulByInverse,
    EliminateCommonSubexpressions,
    FuseBiasInLinear,
    MergeLinears,
    RemoveDeadCode,
    RemoveIdentities,
    Session,
    Transformation,
    from_callable,
    from_pattern,
)
from fxlab.graphs.changes import Changes, changes_made


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.drop = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.query(x) * self.key(x) / 2 + self.drop(self.value(x)))


def graph(module: nn.Module | None = None) -> fx.GraphModule:
    torch.manual_seed(0)
    return fx.symbolic_trace((module or nn.Sequential(Block(), Block())).eval())


def said(p: Transformation, module: nn.Module | None = None) -> str:
    below = graph(module)
    return str(changes_made(below, p(copy.deepcopy(below)), p))


class SigmoidToTanh(Transformation):
    """Keeps no journal."""

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.sigmoid):
            node.target = torch.tanh
            self.mark_as_transformed(node)
        return graph_module


def sigmoid(x):
    return torch.sigmoid(x)


def halved_tanh(x):
    return torch.tanh(x / 2) / 2 + 0.5


def drop_dropouts(graph_module: fx.GraphModule) -> None:
    for node in list(graph_module.graph.nodes):
        if str(node.target).endswith("drop"):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)


@pytest.mark.parametrize(
    ("p", "sentence"),
    [
        (MergeLinears(), "2 rewrites: 6 linears become 2"),
        (RemoveIdentities(), "2 rewrites: 2 dropouts removed"),
        (ChangeTrueDivToMulByInverse(), "2 rewrites: 2 truedivs become 2 muls"),
        (FuseBiasInLinear(), "6 rewrites: 6 linears changed"),
        (RemoveDeadCode(), "no changes"),
        (SigmoidToTanh(), "2 sigmoids become 2 tanhs"),
        (from_callable(drop_dropouts), "2 dropouts removed"),
        (from_pattern(sigmoid, halved_tanh), "2 rewrites: 2 sigmoids become 4 truedivs, 2 tanhs and 2 adds"),
    ],
    ids=lambda value: value.name if isinstance(value, Transformation) else "",
)
def test_what_a_pass_has_done_is_one_sentence(p: Transformation, sentence: str) -> None:
    assert said(p) == sentence


def test_the_table_has_a_row_for_each_rewrite() -> None:
    below = graph()
    table = changes_made(below, MergeLinears()(copy.deepcopy(below)), MergeLinears()).table
    assert len(table) == 2
    assert len(table.loc[0, "removed"].split(", ")) == 3
    assert table.loc[0, "added"]


def test_a_node_that_is_kept_for_others_is_no_change() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() * x.sin()

    assert said(EliminateCommonSubexpressions(), Twice()) == "1 rewrite: 1 sin removed"


def test_what_others_did_before_is_not_counted() -> None:
    session = Session(graph(), passes=[MergeLinears(), FuseBiasInLinear(), RemoveIdentities()])
    for p in session.passes:
        session.apply(p)
    said = [str(session.changes(p)) for p in session.passes]
    assert said == [
        "2 rewrites: 6 linears become 2",
        "2 rewrites: 2 linears changed",
        "2 rewrites: 2 dropouts removed",
    ]


def test_a_session_says_the_same_before_and_after_a_pass_is_applied() -> None:
    session = Session(graph(), passes=[RemoveIdentities(), MergeLinears(), SigmoidToTanh()])
    session.apply("merge-linears")
    for p in session.passes:
        before = session.changes(p)
        session.apply(p)
        assert session.changes(p) == before
    session.exclude("merge-linears", "_0_query")
    assert session.changes("merge-linears") == Changes(1, {"linear": 3}, {"linear": 1})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (Changes(1, {"linear": 1}, {"linear": 3}), "1 rewrite: 1 linear becomes 3"),
        (
            Changes(1, {"linear": 4, "add": 3, "mul": 2, "relu": 1}, {"gelu": 1}),
            "1 rewrite: 4 linears, 3 adds and 3 other nodes become 1 gelu",
        ),
        (Changes(None, {}, {"softmax": 2_000}), "2,000 softmaxes added"),
        (Changes(3, {}, {}), "3 rewrites"),
        (Changes(None, {}, {}), "no changes"),
    ],
)
def test_the_sentence_agrees_in_number(changes: Changes, sentence: str) -> None:
    assert str(changes) == sentence
    assert bool(changes) is (sentence != "no changes")
