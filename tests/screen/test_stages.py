"""Which stage is looked at, and two stages as one graph."""

from __future__ import annotations

import pytest
import torch
from drawing_models import Bert
from torch import fx

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, graph_diff
from fxlab.drawing import View, build_hierarchy, render
from fxlab.drawing.changes import merged_graph
from fxlab.screen.stages import Stages

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()


@pytest.fixture
def session() -> Session:
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Bert(layers=2)), passes=[MERGE, DIVIDE])
    session.apply(MERGE)
    session.apply(DIVIDE)
    return session


def test_two_graphs_as_one_hold_the_nodes_of_both_with_what_became_of_them(session: Session) -> None:
    before, after = session.original, session.graph_module
    merged, changes = merged_graph(before, after)
    names = [{node.name for node in gm.graph.nodes} for gm in (before, after, merged)]
    assert names[2] == names[0] | names[1]
    assert {name: words for name, (words,) in changes.items()} == graph_diff(before, after)[
        "change"
    ].to_dict()
    assert {words for (words,) in changes.values()} >= {"added", "changed"}
    by_name = {node.name: node for node in merged.graph.nodes}
    for node in after.graph.nodes:
        assert [n.name for n in by_name[node.name].all_input_nodes] == [n.name for n in node.all_input_nodes]


def test_nodes_that_are_gone_stand_where_they_were(session: Session) -> None:
    before, after = session.graph_module, session.original
    merged, changes = merged_graph(before, after)
    gone = [name for name, words in changes.items() if words == ("removed",)]
    assert gone
    hierarchy = build_hierarchy(merged)
    for name in gone:
        assert "attention" in hierarchy.leaves[hierarchy.position_of[name]].path
    picture = render(View.default(hierarchy).reveal(gone), marks=changes)
    assert {name for box in picture.boxes.values() if box.changed for name in box.nodes} >= set(gone)


def test_the_graphs_that_are_compared_stay_as_they_are(session: Session) -> None:
    code = [gm.code for gm in session.stages]
    merged_graph(session.original, session.graph_module)
    assert [gm.code for gm in session.stages] == code


def test_a_stage_is_shown_alone_or_compared(session: Session) -> None:
    stages = Stages(session)
    assert stages.graph is session.graph_module
    assert stages.state() == {
        "names": ["Original", "Merge linears", "Change true div to mul by inverse"],
        "shown": 2,
        "compared": "",
        "beside": False,
        "before": 0,
        "comparisons": ["below", "original"],
        "preview": None,
    }
    stages.go_to(1)
    assert stages.graph is session.stages[1]
    assert set(stages.marks) == {n.name for n in MERGE.get_transformed_nodes(session.stages[1])}
    stages.go_to(2, "below")
    assert {words for (words,) in stages.marks.values()} == {"changed"}
    assert stages.stage is session.graph_module
    stages.go_to(2, "original")
    assert ("added",) in stages.marks.values()


@pytest.mark.parametrize(
    ("number", "compared", "words"),
    [
        (3, "", "no stage 3"),
        (-1, "", "no stage -1"),
        (0, "original", "cannot be compared"),
        (2, "x", "cannot"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_changes(
    session: Session, number: int, compared: str, words: str
) -> None:
    stages = Stages(session)
    with pytest.raises(ValueError, match=words):
        stages.go_to(number, compared)
    assert stages.graph is session.graph_module


def test_a_reset_looks_at_the_last_stage_again(session: Session) -> None:
    stages = Stages(session)
    stages.go_to(1, "original")
    session.revert(DIVIDE)
    stages.reset()
    assert (stages.number, stages.compared, stages.graph) == (1, "", session.graph_module)


def test_two_stages_side_by_side_are_both_drawn_as_they_are(session: Session) -> None:
    stages = Stages(session)
    stages.go_to(2, "below", beside=True)
    assert (stages.before, stages.graph) == (session.stages[1], session.stages[2])
    assert stages.marks == merged_graph(session.stages[1], session.stages[2])[1]
    state = stages.state()
    assert (state["shown"], state["before"], state["beside"]) == (2, 1, True)
    with pytest.raises(ValueError, match="compared with: below or original"):
        stages.go_to(1, beside=True)
    assert stages.number == 2


def test_two_stages_stay_side_by_side_while_there_are_two(session: Session) -> None:
    stages = Stages(session)
    stages.go_to(2, "below", beside=True)
    session.revert(DIVIDE)
    stages.reset()
    assert (stages.number, stages.compared, stages.beside) == (1, "original", True)
    assert (stages.before, stages.graph) == session.stages
    session.reset()
    stages.reset()
    assert (stages.number, stages.compared, stages.beside) == (0, "", False)
