"""Graphs as data: all of a graph arrives, nothing twice, and large ones in parts."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
import torch
from drawing_models import bert_session
from received import Received
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, graph_diff
from fxlab.drawing.hierarchy.changes import CHANGES, changes_between
from fxlab.drawing.rendering.box import TITLE_SIZE, make_boxes
from fxlab.drawing.rendering.dot import outline
from fxlab.drawing.rendering.theme import text_width
from fxlab.graphs.provenance import Provenance
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.overlays import from_table
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data import GraphData, graph_data
from fxlab.view_model.graph_data.shown_graph import ShownGraph

MERGE, DIVIDE = MergeLinears(), ChangeTrueDivToMulByInverse()


@pytest.fixture(scope="module")
def session() -> Session:
    return bert_session(MERGE, DIVIDE)


def add(data: GraphData, session: Session, stage: int) -> int:
    signatures = tuple(p.signature for p in session.passes)
    return data.add(ShownGraph.alone(session.stages[stage], signatures), {"title": "model"})


def names(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def test_all_of_a_graph_arrives(session: Session) -> None:
    data = GraphData()
    number = add(data, session, 2)
    page = Received(json.loads(json.dumps(data.take(), allow_nan=False)))
    gm = session.graph_module
    assert page.names(number) == names(gm)
    assert page.inputs(number) == {
        node.name: [other.name for other in node.all_input_nodes] for node in gm.graph.nodes
    }
    marks = {
        node.name: set(node.meta["transformations"])
        for node in gm.graph.nodes
        if "transformations" in node.meta
    }
    assert {name: set(found) for name, found in page.marked(number).items()} == marks
    for _, look in page.leaves(number):
        title, width, _ = look["title"]
        assert width == text_width(title, TITLE_SIZE, bold="fx-bookkeeping" not in look["classes"])
    first = {name: leaf[0] for leaf, _ in page.leaves(number) for name in leaf}
    assert page.edges(number) == {
        (first[other.name], first[node.name])
        for node in gm.graph.nodes
        for other in node.all_input_nodes
        if first[other.name] != first[node.name]
    }


def test_a_page_opens_what_python_opens_at_first(session: Session) -> None:
    data = GraphData()
    number = add(data, session, 2)
    (written,) = Received(data.take()).tables["graphs"]
    first = data.first_view(number)
    assert written["opened"] == sorted(first.opened)
    changed = [name for name in names(session.graph_module) if name in data.shown(number).marks]
    hierarchy = data.hierarchy(number)
    assert changed
    inner = {hierarchy.ancestors(name)[-1] for name in changed}
    assert inner & first.opened == {"encoder.layer.0.attention"}, "one of two layers that are changed alike"
    assert not set(written["overview"]) >= set(written["opened"]), "the overview opens nothing for marks"


def test_a_stage_adds_little_to_the_one_that_it_was_made_of(session: Session) -> None:
    data = GraphData()
    first, second = (add(data, session, stage) for stage in (0, 1))
    alone = GraphData()
    add(alone, session, 0)
    before = alone.take()
    both = data.take()
    changed = graph_diff(session.stages[0], session.stages[1])["change"]
    more = len(both["facts"]) - len(before["facts"])
    assert 0 < more <= len(changed)
    assert both["leaves"][: len(before["leaves"])] == before["leaves"]
    assert add(data, session, 1) not in (first, second)
    again = data.take()
    assert {name: len(rows) for name, rows in again.items() if rows} == {"graphs": 1}, (
        "nothing is written twice"
    )


def test_what_was_taken_is_not_taken_again(session: Session) -> None:
    data = GraphData()
    number = add(data, session, 0)
    data.lay_out(number)
    page = Received(data.take())
    view = data.first_view(number)
    assert list(page.layouts) == [outline(view, make_boxes(view, {}, ()))]
    assert not any(data.take().values())
    later = add(data, session, 1)
    page.add(data.take())
    assert page.names(number) == names(session.original)
    assert page.names(later) == names(session.stages[1])


def test_the_same_box_with_other_marks_is_written_as_what_is_different(session: Session) -> None:
    data = GraphData()
    add(data, session, 2)
    data.add(ShownGraph.merged(session.original, session.graph_module), {})
    looks = data.take()["looks"]
    whole = [(look["kind"], look["label"], *look["details"]) for look in looks if "like" not in look]
    assert len(whole) == len(set(whole))
    alike = [(number, look) for number, look in enumerate(looks) if "like" in look]
    assert alike
    for number, look in alike:
        assert look["like"] < number
        assert "like" not in looks[look["like"]]
        assert not look.keys() & {"kind", "label", "details"}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let graphs be sent in parts that are larger than this."""
    monkeypatch.setattr(graph_data, "MOST_AT_ONCE", 30)
    return 30


@pytest.mark.parametrize("nested", [False, True], ids=["beside each other", "in a large group"])
def test_a_large_graph_arrives_in_parts_and_is_complete_at_the_end(small_parts: int, nested: bool) -> None:
    blocks = [nn.Sequential(*[nn.Linear(2, 2), nn.Tanh()] * (5 + i)) for i in range(8)]
    gm = fx.symbolic_trace(
        nn.Sequential(nn.Sequential(*blocks), *blocks) if nested else nn.Sequential(*blocks)
    )
    data = GraphData()
    number = data.add(ShownGraph.alone(gm, ()), {})
    page = Received(data.take())
    assert not page.is_complete(number)
    seen = len(page.names(number))
    parts = 0
    while True:
        is_last = data.fill(number)
        part = data.take()
        assert sum(len(part[table]) for table in ("graphs", "pairs", "texts")) < 10 * small_parts
        page.add(part)
        now = len(page.names(number))
        assert seen < now <= seen + small_parts + 24, "at most one block too many"
        seen, parts = now, parts + 1
        if is_last:
            break
    assert parts > 1
    assert page.is_complete(number)
    assert page.names(number) == names(gm)
    assert data.fill(number)
    assert not any(data.take().values())


def test_groups_of_two_large_graphs_that_differ_inside_are_not_taken_for_each_other(
    session: Session, small_parts: int
) -> None:
    data = GraphData()
    numbers = [add(data, session, stage) for stage in (0, 1)]
    page = Received(data.take())
    assert not page.is_complete(numbers[0])
    for number in numbers[::-1]:
        while not data.fill(number):
            pass
    page.add(data.take())
    for stage, number in enumerate(numbers):
        assert page.names(number) == names(session.stages[stage])


@pytest.mark.parametrize("most", [10_000, 30])
def test_a_pair_has_the_looks_of_what_is_different_and_what_stands_for_what(
    session: Session, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_data, "MOST_AT_ONCE", most)
    data = GraphData()
    before, after = (add(data, session, stage) for stage in (0, 2))
    page = Received(data.take())
    old, new = session.original, session.graph_module
    assert data.add_pair(after, before, changes_between(old, new), CHANGES) == 0
    page.add(data.take())
    (pair,) = page.tables["pairs"]
    changes = graph_diff(old, new)["change"].to_dict()
    for side, number, gm in ((0, after, new), (1, before, old)):
        looks = {place: page.look(look) for place, look in pair["looks"][side].items()}
        found = {}
        for place, (look, leaf) in enumerate(page.looks_in_order(number)):
            marked = looks.get(place, page.look(look))
            assert marked["label"] == page.look(look)["label"]
            # Where a look is the same, its marks mean what is different all the same.
            words = "+".join(pair["signatures"][mark] for mark in marked["marks"])
            found |= {name: words for name in leaf if words}
        assert found == {name: change for name, change in changes.items() if name in names(gm)}
    provenance = Provenance(old, new)
    for position, node in enumerate(new.graph.nodes):
        expected = [other.name for other in provenance.of(node)]
        listed = pair["counterparts"].get(position)
        found = [node.name] * (node.name in names(old)) if listed is None else [names(old)[i] for i in listed]
        assert found == expected
    assert 0 < len(pair["counterparts"]) <= len(changes)


def test_values_are_written_in_the_order_of_the_nodes(session: Session) -> None:
    data = GraphData()
    number = add(data, session, 0)
    order = names(session.original)
    (overlay,) = from_table(
        pd.Series({order[2]: float("nan"), order[3]: 2**60, order[4]: "<b>"}, name="mine")
    )
    data.add_overlay(number, overlay)
    (written,) = json.loads(json.dumps(data.take(), allow_nan=False))["overlays"]
    assert (written["graph"], written["name"], written["title"]) == (number, "mine", "mine")
    assert len(written["values"]) == len(order)
    assert written["values"][4] == "<b>"
    assert written["values"][5:] == [None] * (len(order) - 5)


@pytest.mark.parametrize("most", [10_000, 30])
def test_extras_have_what_is_said_of_every_node_and_group(
    session: Session, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_data, "MOST_AT_ONCE", most)
    data = GraphData()
    number = add(data, session, 2)
    hierarchy = data.hierarchy(number)
    data.add_extras(number, Describer(hierarchy, {}))
    page = Received(data.take())
    assert page.is_complete(number)
    extras: dict[str, Any] = page.tables["graphs"][number]["extras"]
    describer, said = Describer(hierarchy, {}), page.tables["extras"]
    nodes = list(session.graph_module.graph.nodes)
    assert [said[place] for place in extras["nodes"]] == [describer.node(node) for node in nodes]
    assert {path: said[place] for path, place in extras["groups"].items()} == {
        path: describer.group(group) for path, group in hierarchy.groups.items()
    }
    assert len(said) < len(nodes) + len(hierarchy.groups), "what is said twice is written once"


def test_a_graph_that_is_let_go_of_keeps_its_number(session: Session) -> None:
    data = GraphData()
    gone, kept = (add(data, session, stage) for stage in (0, 1))
    assert data.forget_others({kept}) == 1
    assert data.numbers == [kept]
    assert data.shown(kept).graph is session.stages[1]
    for ask in (data.shown, data.hierarchy, data.fill, data.first_view):
        with pytest.raises(ValueError, match=f"no graph {gone}: its stage is gone"):
            ask(gone)
    assert add(data, session, 2) == 2
    assert Received(data.take()).names(2) == names(session.graph_module)


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU()
        self.shift = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x * 2.0)) + self.shift - y


def _node(gm: fx.GraphModule, name: str) -> fx.Node:
    return next(node for node in gm.graph.nodes if node.name == name)


_CHANGES = {
    "a constant": lambda gm: _node(gm, "mul").update_arg(1, 3.0),
    "an input": lambda gm: _node(gm, "sub").update_arg(1, _node(gm, "x")),
    "a keyword": lambda gm: setattr(_node(gm, "mul"), "kwargs", {"out": None}),
    "a function": lambda gm: setattr(_node(gm, "add"), "target", torch.maximum),
    "a result": lambda gm: _node(gm, "mul").meta.update(val=torch.empty(2, 4, 1, device="meta")),
    "a place": lambda gm: _node(gm, "sub").meta.update(nn_module_stack={"a.b": ("a.b", nn.Linear)}),
    "a mark": lambda gm: _node(gm, "linear").meta.update(transformations={"x"}),
    "a module's class": lambda gm: setattr(gm, "act", nn.GELU()),
    "a module's sizes": lambda gm: setattr(gm, "linear", nn.Linear(4, 9)),
    "a parameter": lambda gm: setattr(gm, "shift", nn.Parameter(torch.ones(2, 9))),
    "which parameter is read": lambda gm: setattr(_node(gm, "shift"), "target", "linear.bias"),
    "nothing": lambda gm: None,
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_what_is_written_of_a_graph_is_the_same_behind_one_that_it_was_copied_from(change: Any) -> None:
    traced = fx.symbolic_trace(_Small())
    copied = share_tensors_copy(traced)
    change(copied)

    def written(*graphs: fx.GraphModule) -> list[Any]:
        data = GraphData()
        for graph in graphs:
            number = data.add(ShownGraph.alone(graph, ("x",)), {"title": "model"})
        page = Received(json.loads(json.dumps(data.take())))
        texts = page.tables["texts"]
        facts = [
            [
                [texts[one] for one in ([part] if type(part) is int else part)]
                for part in (*row[:7], *row[8:10])
            ]
            + [row[7], row[10], texts[row[11]]]
            for leaf, _ in page._children(page.tables["graphs"][number]["tree"])
            for row in (page.tables["facts"][one] for one in page.tables["leaves"][leaf][1:])
        ]
        looks = [(names, look | {"like": None}) for names, look in page.leaves(number)]
        return [looks, page.names(number), facts]

    assert written(traced, copied) == written(copied)
