"""Which stage is looked at, and two stages as one graph."""

from __future__ import annotations

import pytest
import torch
from drawing_models import Bert
from fxlab.view_model.graph_view.stages import Stages
from torch import fx

from fxlab import (
    ChangeTrueDivToMulByInverse,
    LintAndRecompile,
    MergeLinears,
    RemoveDeadCode,
    RemoveIdentities,
    Session,
    graph_diff,
)
from fxlab.drawing import View, build_hierarchy, render
from fxlab.drawing.hierarchy.changes import merged_graph

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
        "before": None,
        "comparisons": [0, 1],
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
    assert stages.number_before == 0


@pytest.mark.parametrize(
    ("number", "compared", "words"),
    [
        (3, "", "no stage 3"),
        (-1, "", "no stage -1"),
        (0, "original", "Stage 0 cannot be compared with 'original', but with nothing"),
        (0, 0, "but with nothing"),
        (2, "x", "Stage 2 cannot be compared with 'x', but with .* of an earlier stage: 0, 1"),
        (2, 2, "cannot be compared with 2"),
        (2, -1, "cannot be compared with -1"),
        (2, True, "cannot be compared with True"),
        (2, 0.0, "cannot be compared with 0.0"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_changes(
    session: Session, number: int, compared: str | int, words: str
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
    with pytest.raises(ValueError, match="compared with: below, original or a number"):
        stages.go_to(1, beside=True)
    assert stages.number == 2


def test_two_stages_stay_side_by_side_while_there_are_two(session: Session) -> None:
    stages = Stages(session)
    stages.go_to(2, "below", beside=True)
    session.revert(DIVIDE)
    stages.reset()
    assert (stages.number, stages.compared, stages.beside) == (1, "below", True)
    assert (stages.before, stages.graph) == session.stages
    session.revert_all()
    stages.reset()
    assert (stages.number, stages.compared, stages.beside) == (0, "", False)


@pytest.fixture
def long_session(session: Session) -> Session:
    """Five stages above the original; those of the last three are the same."""
    for p in (RemoveIdentities(), RemoveDeadCode(), LintAndRecompile()):
        session.add(p)
        session.apply(p)
    return session


@pytest.mark.slow
def test_any_stage_is_compared_with_any_below_it(long_session: Session) -> None:
    stages, graphs = Stages(long_session), long_session.stages
    assert len(graphs) == 6
    for number in range(6):
        for before in range(number):
            changes = graph_diff(graphs[before], graphs[number])["change"].to_dict()
            for beside in (False, True):
                stages.go_to(number, before, beside=beside)
                assert (stages.stage, stages.before) == (graphs[number], graphs[before])
                assert {name: words for name, (words,) in stages.marks.items()} == changes
                state = stages.state()
                assert (state["compared"], state["before"]) == (before, before)
                assert state["comparisons"] == list(range(number))


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        ("", [None] * 6),
        ("below", [None, 0, 1, 2, 3, 4]),
        (0, [None, 0, 0, 0, 0, 0]),
        (2, [None, 0, 1, 2, 2, 2]),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_the_comparison_stays_while_the_stage_is_walked_from(
    long_session: Session, compared: str | int, expected: list[int | None], beside: bool
) -> None:
    found = []
    for number in range(6):
        stages = Stages(long_session)
        stages.go_to(5, compared, beside=beside and compared != "")
        stages.walk_to(number)
        found.append(stages.number_before)
        assert stages.beside == (beside and stages.number_before is not None)
    assert found == expected
