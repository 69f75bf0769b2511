"""Two stages side by side: the same groups are open, and what is selected is shown in both."""

from __future__ import annotations

import pytest
import torch
from drawing_models import Bert
from fxlab.view_model.graph_view.counterparts import Counterparts
from fxlab.view_model.graph_view.panes import Panes, Selection
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, FuseBatchNorm2dInConv2d, MergeLinears, Session

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()


@pytest.fixture
def panes() -> Panes:
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Bert(layers=2)), passes=[MERGE, DIVIDE])
    session.apply(MERGE)
    session.apply(DIVIDE)
    panes = Panes(session)
    panes.stages.go_to(2, "original", beside=True)
    panes.show()
    return panes


def attention_of(panes: Panes, before: bool) -> str:
    groups = panes.scene(before).hierarchy.groups
    return next(path for path in groups if path.endswith("0.attention"))


def boxes_by_name(panes: Panes, before: bool) -> dict[str, str]:
    view = panes.scene(before).view
    return {name: view.box_of[name] for name in view.box_of}


def test_one_stage_has_one_pane() -> None:
    panes = Panes(Session(fx.symbolic_trace(Bert(layers=1)), passes=[MERGE]))
    assert panes.before is None
    assert panes.counterparts(Selection("group", "encoder")) == []
    with pytest.raises(ValueError, match="No stage is shown beside"):
        panes.scene(before=True)


def test_each_side_shows_its_own_stage_with_what_became_of_its_nodes(panes: Panes) -> None:
    after, before = panes.draw()
    session = panes.stages.session
    for picture, stage in ((after, session.stages[2]), (before, session.original)):
        drawn = {name for box in picture.boxes.values() for name in box.nodes}
        assert drawn <= {node.name for node in stage.graph.nodes}
    words = ("added", "removed", "changed", "rewired")
    marked = [{words[mark] for box in p.boxes.values() for mark in box.marks} for p in (after, before)]
    assert "added" in marked[0]
    assert "removed" not in marked[0]
    assert "added" not in marked[1]
    assert "changed" in marked[1]


@pytest.mark.parametrize("before", [False, True])
def test_a_group_opens_and_closes_on_both_sides(panes: Panes, before: bool) -> None:
    path = attention_of(panes, before)
    panes.close(path)
    for scene in panes.scenes:
        assert path not in scene.view.opened
    panes.open(path)
    for scene in panes.scenes:
        assert path in scene.view.opened
        assert scene.hierarchy.groups[path] in scene.view.clusters
    with pytest.raises(ValueError, match="no group 'nowhere'"):
        panes.open("nowhere")


def test_what_could_not_be_drawn_is_closed_again_on_both_sides(panes: Panes) -> None:
    path = attention_of(panes, before=False)
    panes.close(path)

    def fail_to_draw() -> None:
        with panes.tentative():
            panes.open(path)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_to_draw()
    assert [path in scene.view.opened for scene in panes.scenes] == [False, False]


def test_a_merged_linear_and_those_that_were_merged_find_each_other(panes: Panes) -> None:
    panes.open(attention_of(panes, before=False))
    merged = next(n.name for n in panes.stages.stage.graph.nodes if "merged" in n.name)
    here, there = boxes_by_name(panes, False), boxes_by_name(panes, True)
    names = [n.name for n in panes.stages.before.graph.nodes if n.name.endswith(("query", "key", "value"))]
    parts = [name for name in names if there.get(name) in panes.counterparts(Selection("node", merged))]
    assert len(parts) == 3
    for name in parts:
        boxes = panes.counterparts(Selection("node", name, before=True))
        assert here[merged] in boxes
        assert boxes[0] == here[name], "what has kept its name comes first"


def test_a_node_in_a_closed_group_is_stood_for_by_the_group(panes: Panes) -> None:
    path = attention_of(panes, before=True)
    panes.open(path)
    name = next(n.name for n in panes.stages.before.graph.nodes if n.name.endswith("query"))
    open_box = panes.counterparts(Selection("node", name, before=True))
    panes.close(path)
    assert panes.counterparts(Selection("node", name, before=True)) != open_box
    group = panes.shown.hierarchy.groups[path]
    assert panes.counterparts(Selection("node", name, before=True)) == [group.id]


def test_a_group_stands_for_the_group_of_its_path_open_or_closed(panes: Panes) -> None:
    path = attention_of(panes, before=True)
    for action in (panes.open, panes.close):
        action(path)
        for before in (False, True):
            selection = Selection("group", path, before)
            assert panes.counterparts(selection) == [panes.box_of(selection)]


def test_a_node_is_uncovered_with_its_counterparts(panes: Panes) -> None:
    panes.close(attention_of(panes, before=True))
    name = next(n.name for n in panes.stages.before.graph.nodes if n.name.endswith("query"))
    selection = Selection("node", name, before=True)
    assert not panes.is_visible(selection)
    panes.uncover(selection)
    assert panes.is_visible(selection)
    assert panes.is_visible(Selection("node", name))


def test_a_node_that_is_gone_is_found_beside() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    fuse = FuseBatchNorm2dInConv2d()
    session = Session(fx.symbolic_trace(layers), passes=[fuse])
    session.apply(fuse)
    panes = Panes(session)
    with pytest.raises(ValueError, match="no node named '_1'"):
        panes.find_node("_1")
    panes.stages.go_to(1, "original", beside=True)
    panes.show()
    assert panes.find_node("_1") == Selection("node", "_1", before=True)
    assert panes.find_node("_0") == Selection("node", "_0")
    assert panes.find_node("_0", before=True) == Selection("node", "_0", before=True)
    counterparts = Counterparts(session.original, session.graph_module)
    assert counterparts.of(["_0"], before=False) == ["_0", "_1"]
    assert counterparts.of(["_1"], before=True) == ["_0"]
    assert counterparts.of(["_2"], before=True) == ["_2"]
    assert counterparts.of(["nothing"], before=True) == []


def test_one_pane_is_left_when_the_stages_are_gone(panes: Panes) -> None:
    panes.stages.session.revert_all()
    panes.stages.reset()
    panes.show()
    assert panes.before is None
    assert not panes.holds(Selection("group", "encoder", before=True))
    assert panes.holds(Selection("group", "encoder"))
