"""Which graphs of a session a page has, and by which numbers."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from drawing_models import Bert
from received import Received
from torch import fx

from fxlab import (
    ChangeTrueDivToMulByInverse,
    LintAndRecompile,
    MergeLinears,
    RemoveDeadCode,
    Session,
    TransformationError,
    from_callable,
    graph_diff,
)
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.box import make_boxes
from fxlab.view_model.graph_data import ShownGraph, session_graphs
from fxlab.view_model.graph_data.session_graphs import SessionGraphs

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()


def break_it(graph_module: fx.GraphModule) -> fx.GraphModule:
    graph_module.graph.erase_node(next(iter(graph_module.graph.find_nodes(op="output"))))
    raise KeyError("no such layer")


@pytest.fixture
def session() -> Session:
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Bert(layers=2)), passes=[MERGE, DIVIDE, from_callable(break_it)])
    session.apply(MERGE)
    session.apply(DIVIDE)
    return session


def test_nothing_is_written_before_it_is_asked_for_and_nothing_twice(session: Session) -> None:
    graphs = SessionGraphs(session)
    assert graphs.state() == {
        "names": ["Original", "Merge linears", "Change true div to mul by inverse"],
        "changes": ["", "2 rewrites: 6 linears become 2", "2 rewrites: 2 truedivs become 2 muls"],
        "version": 0,
        "alone": {},
        "merged": {},
        "pairs": {},
        "codes": {},
        "codeDifferences": {},
        "preview": None,
    }
    assert not any(graphs.data.take().values())
    for _ in range(2):
        assert graphs.alone(2) == 0
        assert graphs.merged(2, 1) == 1
        assert graphs.pair(2, 1) == 0
    state = graphs.state()
    assert state["alone"] == {"2": 0, "1": 2}
    assert (state["merged"], state["pairs"]) == ({"2/1": 1}, {"2/1": 0})
    page = Received(graphs.data.take())
    assert (len(page.tables["graphs"]), len(page.tables["pairs"])) == (3, 1)
    (pair,) = page.tables["pairs"]
    assert (pair["after"], pair["before"]) == (0, 2)


@pytest.mark.slow
def test_any_stage_is_compared_with_any_below_it(session: Session) -> None:
    for p in (RemoveDeadCode(), LintAndRecompile()):  # these change nothing
        session.add(p)
        session.apply(p)
    graphs, stages = SessionGraphs(session), session.stages
    for stage in range(len(stages)):
        for before in range(stage):
            number, pair = graphs.merged(stage, before), graphs.pair(stage, before)
            state = graphs.state()
            assert state["merged"][f"{stage}/{before}"] == number
            assert state["pairs"][f"{stage}/{before}"] == pair
            changes = graph_diff(stages[before], stages[stage])["change"].to_dict()
            shown = graphs.data.shown(number)
            assert {name: change for name, (change,) in shown.marks.items()} == changes
            assert shown.stage is stages[stage]
    page = Received(graphs.data.take())
    for keys, number in graphs.state()["merged"].items():
        after, before = (stages[int(key)] for key in keys.split("/"))
        expected = {node.name for gm in (after, before) for node in gm.graph.nodes}
        assert set(page.names(number)) == expected


@pytest.mark.usefixtures("young")
def test_stages_that_stay_keep_their_numbers_and_those_that_are_gone_are_let_go_of(session: Session) -> None:
    graphs = SessionGraphs(session)
    alone = [graphs.alone(stage) for stage in range(3)]
    kept, gone = graphs.merged(1, 0), graphs.merged(2, 0)
    graphs.pair(1, 0)
    graphs.pair(2, 0)
    last = weakref.ref(session.graph_module)
    session.revert(DIVIDE)
    graphs.reset()
    state = graphs.state()
    assert state["version"] == 1
    assert state["alone"] == {"0": alone[0], "1": alone[1]}
    assert (state["merged"], state["pairs"]) == ({"1/0": kept}, {"1/0": 0})
    assert graphs.data.shown(kept).stage is session.graph_module
    with pytest.raises(ValueError, match="its stage is gone"):
        graphs.data.shown(gone)
    gc.collect()
    assert last() is None, "nothing holds the stage"
    session.apply(DIVIDE)
    graphs.reset()
    assert graphs.alone(2) not in alone


def test_a_stage_that_is_below_another_now_is_the_same_graph(session: Session) -> None:
    graphs = SessionGraphs(session)
    number = graphs.alone(1)
    session.add(RemoveDeadCode())
    session.apply("remove-dead-code")
    graphs.reset()
    assert graphs.alone(1) == number


def test_after_many_changes_everything_is_written_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_graphs, "MOST_FORGOTTEN", 3)
    graphs = SessionGraphs(session)
    first, sizes = graphs.data, []
    for _ in range(12):
        graphs.alone(len(session.applied))
        (session.revert if DIVIDE in session.applied else session.apply)(DIVIDE)
        graphs.reset()
        page = Received(graphs.data.take())
        sizes.append(len(page.tables["graphs"]))
        assert len(graphs.data.numbers) <= 3
    assert graphs.data is not first
    assert graphs.state()["version"] == 12
    number = graphs.alone(len(session.applied))
    graphs.data.take()
    assert graphs.data.shown(number).graph is session.graph_module


def test_a_preview_is_the_present_model_and_what_the_pass_would_make_of_it(session: Session) -> None:
    session.revert(DIVIDE)
    graphs = SessionGraphs(session)
    graphs.alone(1)
    graphs.preview(DIVIDE)
    preview = graphs.state()["preview"]
    assert preview["signature"] == DIVIDE.signature
    assert preview["name"] == "Change true div to mul by inverse"
    assert preview["text"] == "2 rewrites: 2 truedivs become 2 muls"
    shown = graphs.data.shown(preview["graph"])
    assert set(shown.marks.values()) == {("changed",)}
    assert shown.stage.code == session.preview(DIVIDE).code, "colours are those of what there would be"
    model = Received(graphs.data.take()).tables["graphs"][preview["graph"]]["model"]
    fields = {field["label"]: field["value"] for field in model["fields"]}
    assert fields["Nodes"] == str(len(shown.stage.graph.nodes)), "of what there would be"
    assert fields["Passes on"] == "Merge linears, Change true div to mul by inverse (preview)"
    assert "operator.truediv" not in {row["name"] for row in model["contents"]}
    with pytest.raises(TransformationError, match="no such layer"):
        graphs.preview(session.passes["break-it"])
    assert graphs.state()["preview"] == preview, "what was previewed before stays"
    graphs.end_preview()
    assert graphs.state()["preview"] is None
    graphs.data.take()
    graphs.preview(DIVIDE)
    assert graphs.state()["preview"] == preview
    assert not any(graphs.data.take().values()), "it is known already"
    session.apply(DIVIDE)
    graphs.reset()
    assert graphs.state()["preview"] is None
    with pytest.raises(ValueError, match="its stage is gone"):
        graphs.data.shown(preview["graph"])


def test_a_preview_says_how_much_would_be_done_without_candidates_that_are_excluded(session: Session) -> None:
    session.revert(DIVIDE)
    session.exclude(DIVIDE, session.passes[DIVIDE.name].candidates(session.graph_module)[0][0])
    session.revert(DIVIDE)
    graphs = SessionGraphs(session)
    graphs.preview(DIVIDE)
    assert graphs.state()["preview"]["text"] == "1 rewrite: 1 truediv becomes 1 mul"


def test_groups_say_how_many_nodes_differ_and_do_not_call_them_changed(session: Session) -> None:
    graphs = SessionGraphs(session)
    merged, alone = (
        badges_of(graphs.data.shown(number)) for number in (graphs.merged(1, 0), graphs.alone(1))
    )
    assert "8 differ" in merged
    assert not any("changed" in badge for badge in merged)
    assert "2 changed" in alone


def badges_of(shown: ShownGraph) -> set[str]:
    view = View(build_hierarchy(shown.graph))
    return {box.badge for box in make_boxes(view, shown.marks, shown.signatures).values()}
