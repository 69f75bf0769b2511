"""Two graphs as one."""

from __future__ import annotations

import pytest
from drawing_models import bert_session

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, graph_diff
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.hierarchy.changes import CHANGES, merged_graph
from fxlab.drawing.rendering.box import make_boxes

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()


@pytest.fixture
def session() -> Session:
    return bert_session(MERGE, DIVIDE)


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
    view = View.default(hierarchy).reveal(gone)
    boxes = make_boxes(view, changes, CHANGES)
    changed = [item for item in (*view.clusters, *view.boxes) if boxes[item.id].changed]
    assert {name for item in changed for name in hierarchy.names_in(item)} >= set(gone)


def test_the_graphs_that_are_compared_stay_as_they_are(session: Session) -> None:
    code = [gm.code for gm in session.stages]
    merged_graph(session.original, session.graph_module)
    assert [gm.code for gm in session.stages] == code
