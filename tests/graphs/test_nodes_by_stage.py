"""What becomes of each node, stage by stage."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import traced
from torch import fx, nn

from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    RemoveDeadCode,
    RemoveIdentities,
    Session,
    Transformation,
    from_callable,
    graph_diff,
)
from fxlab.graphs.matching import Provenance
from fxlab.graphs.nodes_by_stage import nodes_by_stage

PASSES = (
    MergeLinears(),
    ChangeTrueDivToMulByInverse(),
    RemoveIdentities(),
    FuseBiasInLinear(),
    RemoveDeadCode(),
)


class Layers(nn.Module):
    """Layers of several kinds, one after the other."""

    def __init__(self, kinds: list[str]) -> None:
        super().__init__()
        self.kinds = kinds
        self.first = nn.ModuleList(nn.Linear(4, 4) for _ in kinds)
        self.second = nn.ModuleList(nn.Linear(4, 4) for _ in kinds)
        self.third = nn.ModuleList(nn.Identity() if kind == "identity" else nn.Dropout() for kind in kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, kind in enumerate(self.kinds):
            if kind == "both":
                x = self.first[number](x) * self.second[number](x)
            elif kind == "divide":
                x = self.first[number](x) / 3
            elif kind == "dead":
                self.second[number](x)
            else:
                x = self.third[number](x)
        return x


def session_of(kinds: list[str], passes: list[Transformation]) -> Session:
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Layers(kinds).eval()), torch.ones(2, 4), passes=passes)
    for p in passes:
        session.apply(p)
    return session


def text(table: object) -> dict[str, list[str]]:
    return {str(name): [str(cell) for cell in row] for name, *row in table.itertuples()}  # type: ignore[attr-defined]


sessions = st.builds(
    session_of,
    st.lists(st.sampled_from(["both", "divide", "dead", "identity", "dropout"]), min_size=1, max_size=4),
    st.permutations(PASSES).flatmap(lambda passes: st.integers(0, 4).map(lambda count: passes[:count])),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(sessions)
def test_from_stage_to_stage_nodes_become_what_their_provenance_says(session):
    table, stages = nodes_by_stage(session, unchanged=True), session.stages
    names = [[node.name for node in stage.graph.nodes] for stage in stages]
    assert set(table.index) == {name for stage in names for name in stage}
    assert table.index.is_unique
    # Composed from stage to stage, it is the same as of the original and the stage.
    for number, stage in enumerate(stages):
        column = table.iloc[:, number]
        provenance = Provenance(session.original, stage)
        for node in stage.graph.nodes:
            cells = {name for name in names[0] if node.name in column[name].nodes}
            stands_for = {other.name for other in provenance.of(node)}
            assert cells - {node.name} == stands_for - {node.name}
            assert node.name in column[node.name].nodes
        for name in table.index:
            assert set(column[name].nodes) <= set(names[number])


@pytest.mark.slow
@settings(max_examples=60)
@given(sessions)
def test_what_is_said_of_nodes_of_the_original_is_their_difference_from_it(session):
    table, stages = nodes_by_stage(session, unchanged=True), session.stages
    for number, stage in enumerate(stages):
        diff = graph_diff(session.original, stage)
        for node in session.original.graph.nodes:
            cell = table[table.columns[number]][node.name]
            if node.name not in diff.index:
                assert (cell.change, cell.differs) == ("same", ())
            elif diff.loc[node.name, "change"] == "removed":
                assert cell.change in ("removed", "replaced")
                assert (cell.change == "replaced") == bool(cell.nodes)
            else:
                assert cell.change == diff.loc[node.name, "change"]
                assert list(cell.differs) == diff.loc[node.name, "differs"]


@pytest.mark.slow
@settings(max_examples=40)
@given(sessions)
def test_only_what_is_the_same_throughout_is_left_out(session):
    table, everything = nodes_by_stage(session), nodes_by_stage(session, unchanged=True)
    happens = [name for name, *row in everything.itertuples() if {cell.change for cell in row} != {"same"}]
    assert list(table.index) == happens
    assert table.equals(everything.loc[happens])
    assert list(table.columns) == ["original", *(p.name for p in session.applied)]


def test_a_merged_linear_stands_for_all_that_were_merged_at_every_later_stage():
    session = session_of(["both"], [MergeLinears(), FuseBiasInLinear()])
    rows = text(nodes_by_stage(session))
    (name,) = (name for name in rows if name.endswith("merged"))
    merged = f"≠ op, target, arguments → {name}"
    assert rows["first_0"] == rows["second_0"] == ["·", merged, merged]
    assert rows[name] == ["", "+", "≠ settings, values"]
    added = [name for name, row in rows.items() if row == ["", "", "+"]]
    assert added


def test_what_is_fused_away_is_replaced_and_what_is_dropped_is_gone():
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.ReLU()).eval()
    passes = [FuseBatchNorm2dInConv2d(), RemoveIdentities()]
    session = Session(fx.symbolic_trace(layers), passes=passes)
    for p in passes:
        session.apply(p)
    assert text(nodes_by_stage(session)) == {
        "evaluation_mode": ["", "+", "·"],
        "evaluation_mode_1": ["", "", "+"],
        "_0": ["·", "≠ settings, values", "≠ settings, values"],
        "_1": ["·", "→ _0", "→ _0"],
        "_2": ["·", "⇄", "—"],
        "_3": ["·", "·", "⇄"],
    }


def test_a_name_that_comes_back_is_the_same_row():
    def drop(graph_module: fx.GraphModule) -> None:
        node = next(iter(graph_module.graph.find_nodes(op="call_function", target=operator.neg)))
        graph_module.graph.erase_node(node)

    def again(graph_module: fx.GraphModule) -> None:
        (x,) = graph_module.graph.find_nodes(op="placeholder")
        with graph_module.graph.inserting_after(x):
            graph_module.graph.call_function(operator.neg, (x,))

    class Unread(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            -x  # noqa: B018
            return x + 1

    passes = [from_callable(drop), from_callable(again)]
    session = Session(fx.symbolic_trace(Unread()), passes=passes)
    for p in passes:
        session.apply(p)
    assert text(nodes_by_stage(session)) == {"neg": ["·", "—", "·"]}


def test_without_a_journal_nodes_are_matched():
    def clamp_for_relu(graph_module: fx.GraphModule) -> None:
        for node in graph_module.graph.find_nodes(op="call_module", target="1"):
            with graph_module.graph.inserting_before(node):
                new = graph_module.graph.call_function(torch.clamp, node.args, {"min": 0})
            node.replace_all_uses_with(new)
            graph_module.graph.erase_node(node)

    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    p = from_callable(clamp_for_relu)
    session = Session(fx.symbolic_trace(layers), passes=[p])
    session.apply(p)
    rows = text(nodes_by_stage(session))
    assert rows["_1"] == ["·", "→ clamp"]
    assert rows["clamp"] == ["", "+"]


def test_a_session_with_nothing_on_has_no_row_in_which_something_happens():
    graph, _ = traced("bert")
    session = Session(graph, passes=[MergeLinears()])
    assert nodes_by_stage(session).empty
    assert list(nodes_by_stage(session).columns) == ["original"]
    assert nodes_by_stage(session).index.name == "node"
    assert len(nodes_by_stage(session, unchanged=True)) == len(graph.graph.nodes)


def test_what_is_no_session_is_refused():
    with pytest.raises(TypeError, match=r"expected an fxlab\.Session, got a Linear"):
        nodes_by_stage(nn.Linear(1, 1))
