"""The present model and what a pass would make of it, as one graph."""

from __future__ import annotations

import pytest
import torch
from drawing_models import Bert
from torch import fx

from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    MergeLinears,
    Session,
    Transformation,
    TransformationError,
    from_callable,
)
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.box import make_boxes
from fxlab.view_model.graph_data.shown_graph import ShownGraph, preview_of

MERGE, DIVIDE, FUSE = MergeLinears(), ChangeTrueDivToMulByInverse(), FuseBatchNorm2dInConv2d()


def break_it(graph_module: fx.GraphModule) -> fx.GraphModule:
    graph_module.graph.erase_node(next(iter(graph_module.graph.find_nodes(op="output"))))
    raise KeyError("no such layer")


def drop_scale(graph_module: fx.GraphModule) -> fx.GraphModule:
    for node in graph_module.graph.find_nodes(op="call_module"):
        if node.name.endswith("dropout"):
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    return graph_module


BREAK, DROP = from_callable(break_it), from_callable(drop_scale)


@pytest.fixture
def session() -> Session:
    torch.manual_seed(0)
    return Session(fx.symbolic_trace(Bert(layers=2)), passes=[FUSE, MERGE, DIVIDE, BREAK, DROP])


def facts(node: fx.Node) -> tuple[object, ...]:
    """Return what a pass may write to a node."""
    marks = sorted(map(str, node.meta.get("transformations", ())))
    return node.name, node.op, str(node.target), str(node.args), sorted(map(str, node.meta)), marks


def snapshot(session: Session) -> list[object]:
    """Return all that a preview must leave alone."""
    stages = [
        (
            id(gm),
            [facts(node) for node in gm.graph.nodes],
            [(name, type(module).__name__) for name, module in gm.named_modules()],
            [(name, id(parameter), parameter._version) for name, parameter in gm.named_parameters()],
            sorted(map(str, gm.meta)),
        )
        for gm in session.stages
    ]
    return [*stages, session.applied, session.can_undo, session.can_redo, session.to_python()]


@pytest.mark.parametrize("p", [MERGE, DIVIDE, DROP], ids=lambda p: p.name)
def test_a_preview_leaves_no_trace_in_the_session(session: Session, p: Transformation) -> None:
    session.apply(MERGE if p is not MERGE else DIVIDE)
    heard: list[Session] = []
    session.on_change(heard.append)
    before = snapshot(session)
    preview_of(session, p)
    assert snapshot(session) == before
    assert heard == []


@pytest.mark.parametrize("others", [[], [DIVIDE]], ids=["alone", "below another"])
def test_what_is_previewed_is_what_is_applied(session: Session, others: list[Transformation]) -> None:
    for p in others:
        session.apply(p)
    tried = session.preview(MERGE)
    now = session.graph_module
    shown, _ = preview_of(session, MERGE)
    session.apply(MERGE)
    described = [[facts(n) for n in gm.graph.nodes] for gm in (tried, session.graph_module)]
    assert described[0] == described[1]
    names = {node.name for node in shown.graph.graph.nodes}
    assert names == {n.name for gm in (now, session.graph_module) for n in gm.graph.nodes}


def test_a_preview_shares_the_tensors_that_the_pass_leaves_alone(session: Session) -> None:
    kept = {id(p) for p in session.graph_module.parameters()}
    tried = [id(p) for p in session.preview(DIVIDE).parameters()]
    assert set(tried) == kept


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (MERGE, "2 rewrites: 6 linears become 2"),
        (FUSE, "no changes"),
    ],
    ids=["merges", "nothing"],
)
def test_how_much_would_be_done_is_said_in_words(session: Session, p: Transformation, text: str) -> None:
    assert preview_of(session, p)[1] == text


def test_what_is_left_out_is_left_out_of_the_preview_too(session: Session) -> None:
    candidate = session.find(MERGE).candidates(session.graph_module)[0]
    session.exclude(MERGE, candidate[0])
    assert preview_of(session, session.find(MERGE))[1] == "1 rewrite: 3 linears become 1"


def test_a_pass_that_raises_raises_and_nothing_else_happens(session: Session) -> None:
    before = snapshot(session)
    with pytest.raises(TransformationError, match="no such layer"):
        preview_of(session, BREAK)
    assert snapshot(session) == before


def test_groups_say_how_many_nodes_differ_and_do_not_call_them_changed(session: Session) -> None:
    shown, _ = preview_of(session, MERGE)
    badges = badges_of(shown)
    assert "8 differ" in badges
    assert not any("changed" in badge for badge in badges)
    session.apply(MERGE)
    stage = ShownGraph.alone(session.graph_module, tuple(p.signature for p in session.passes))
    assert "2 changed" in badges_of(stage)


def badges_of(shown: ShownGraph) -> set[str]:
    hierarchy = build_hierarchy(shown.graph)
    return {box.badge for box in make_boxes(View(hierarchy), shown.marks, shown.signatures).values()}
