from collections import OrderedDict
from itertools import pairwise

import pytest
import torch
from drawing_models import Bert, Llama, boxes_of, flat_chain
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from fxlab.drawing import Hierarchy, View, build_hierarchy
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import outline
from fxlab.drawing.view import FIRST_BUDGET, LONGEST_COLUMN, MOST_IN_A_COLUMN


@pytest.fixture(scope="module")
def llama() -> Hierarchy:
    return build_hierarchy(fx.symbolic_trace(Llama(layers=8)))


@pytest.fixture(scope="module")
def bert() -> Hierarchy:
    return build_hierarchy(fx.symbolic_trace(Bert(layers=4)))


def test_the_first_view_is_small_and_keeps_repeats_folded(llama):
    view = View.default(llama)
    assert 8 <= len(view.boxes) <= 45
    assert "layers.[0-7]" in {getattr(box, "path", "") for box in view.boxes}


@pytest.mark.parametrize("model", [Bert(layers=30), Llama(layers=40)], ids=["bert", "llama"])
def test_the_budget_of_a_first_view_holds(model):
    assert len(View.default(build_hierarchy(fx.symbolic_trace(model))).boxes) <= FIRST_BUDGET


@pytest.mark.slow
def test_a_flat_graph_of_thousands_shows_few_boxes():
    assert len(View.default(build_hierarchy(flat_chain(20_000))).boxes) < 160


def test_opening_shows_the_inside_and_closing_takes_it_back(bert):
    closed = View(bert)
    opened = closed.open("encoder.layer.1.attention")
    inner = ("encoder.layer.[0-3]", "encoder.layer.1", "encoder.layer.1.attention")
    assert {g.path for g in opened.clusters} == {"encoder", *inner}
    assert opened.close("encoder") == closed
    assert closed.opened == frozenset()


def test_every_node_has_one_visible_box(bert):
    for view in (View(bert), View.default(bert), View(bert).open("encoder.layer.0")):
        ids = {box.id for box in view.boxes}
        assert set(boxes_of(view)) == {name for leaf in bert.leaves for name in leaf.names}
        assert set(boxes_of(view).values()) == ids


def test_edges_between_visible_boxes_are_the_graphs_edges(bert):
    view = View(bert).open("encoder.layer.0")
    shown = {(e.source.id, e.target.id) for e in view.edges}
    shown |= {(chip.box.id, reader) for reader, chips in view.chips.items() for chip in chips}
    expected, boxes = set(), boxes_of(view)
    for leaf in bert.leaves:
        for source in leaf.node.all_input_nodes:
            pair = boxes[source.name], boxes[leaf.name]
            if pair[0] != pair[1]:
                expected.add(pair)
    assert shown == expected


def test_values_of_several_nodes_merge_into_one_edge(llama):
    (edge,) = [e for e in View(llama).edges if getattr(e.source, "path", "") == "rotary_emb"]
    assert sorted(leaf.name for leaf in edge.leaves) == ["cos", "sin"]


def test_a_value_read_by_every_layer_has_a_line_to_the_first_and_a_chip_beside_each_other(llama):
    view = View(llama).open("layers.[1-7]")
    first, *others = (box.id for box in view.boxes if getattr(box, "path", "").startswith("layers."))
    assert len(others) == 7
    for layer in others:
        assert {"cos", "sin", "mask"} <= {chip.source.name for chip in view.chips[layer]}
    assert first not in view.chips
    (edge,) = [e for e in view.edges if getattr(e.source, "path", "") == "rotary_emb"]
    assert edge.target.id == first


def test_where_every_block_reads_all_before_it_lines_lead_from_block_to_block():
    class Dense(nn.Module):
        def forward(self, x):
            made = [x]
            for _ in range(8):
                made.append(torch.cat(made).sum(0, keepdim=True))
            return made[-1]

    view = View(build_hierarchy(fx.symbolic_trace(Dense())))
    assert view.chips
    steps = {(edge.source.name, edge.target.name) for edge in view.edges}
    assert set(pairwise(box.name for box in view.boxes)) <= steps


def fanned_out(readers: int, values: int = 1) -> Hierarchy:
    """Return values that are each read by so many nodes, all of them by the last."""
    calls = ("sin", "cos", "tan", "exp", "neg")
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = [graph.create_node("call_method", calls[i % 2], (x,), name=f"value_{i}") for i in range(values)]
    read = [graph.call_method(calls[i], (value,)) for value in made for i in range(readers - 1)]
    joined = graph.call_function(torch.cat, (made,))
    graph.output((*read, joined))
    return build_hierarchy(fx.GraphModule(nn.Module(), graph))


@pytest.mark.parametrize(("readers", "is_chip"), [(4, False), (5, True)])
def test_a_value_that_five_boxes_read_is_a_chip(readers, is_chip):
    view = View(fanned_out(readers))
    assert {chip.source.name for chips in view.chips.values() for chip in chips} == (
        {"value_0"} if is_chip else set()
    )
    assert sum(leaf.name == "value_0" for edge in view.edges for leaf in edge.leaves) == (
        1 if is_chip else readers
    )


@pytest.mark.parametrize(("values", "words"), [(6, None), (7, "and 2 more")])
def test_a_box_has_six_chips_at_most(values, words):
    boxes = make_boxes(View(fanned_out(5, values)), {}, ())
    (texts,) = ([*sum(box.chip_rows, ())] for box in boxes.values() if len(box.chip_rows) > 1)
    assert len(texts) == 6
    assert [text for text in texts if not text.startswith("value_")] == ([words] if words else [])


def test_a_local_value_is_an_edge(bert):
    view = View(bert).open("encoder.layer.0.attention")
    softmax = next(leaf for leaf in bert.leaves if leaf.node.target == "softmax")
    assert any(edge.source.id == softmax.id for edge in view.edges)


def test_reveal_opens_the_groups_around_nodes_within_the_budget(bert):
    leaves = [leaf for leaf in bert.leaves if leaf.node.target == "softmax"]
    names = {leaf.name: (str(number),) for number, leaf in enumerate(leaves)}
    assert len(names) == 4
    small = View(bert).reveal(names, budget=25)
    assert len(small.boxes) <= 25
    assert "encoder.layer.0" in small.opened
    large = View(bert).reveal(names, budget=500)
    assert {leaf.id for leaf in leaves} <= {box.id for box in large.boxes}


def test_of_layers_with_nodes_at_the_same_places_one_is_opened_and_those_that_are_open(bert):
    names = [leaf.name for leaf in bert.leaves if leaf.node.target == "softmax"]
    revealed = View(bert).reveal(names)
    layers = [f"encoder.layer.{number}" for number in range(4)]
    assert [path in revealed.opened for path in layers] == [True, False, False, False]
    ids = {leaf.id for leaf in bert.leaves if leaf.name in names}
    assert len(ids & {box.id for box in revealed.boxes}) == 1
    # One that somebody looks at is the representative.
    open_before = View(bert).open(layers[2]).reveal(names)
    assert [f"{path}.attention" in open_before.opened for path in layers] == [False, False, True, False]
    # A layer with other nodes is no longer like the others.
    one_less = View(bert).reveal(names[:1] + names[2:])
    assert [path in one_less.opened for path in layers] == [True, False, False, False]
    last = next(leaf.name for leaf in bert.leaves if leaf.path == f"{layers[3]}.attention")
    one_more = View(bert).reveal([*names, last])
    assert [path in one_more.opened for path in layers] == [True, False, False, True]


def test_a_group_that_is_not_there_is_named(bert):
    with pytest.raises(ValueError, match="no group 'nope'"):
        View(bert).open("nope")


def test_a_graph_without_edges_has_a_view():
    graph = fx.Graph()
    graph.output(None)
    view = View.default(build_hierarchy(fx.GraphModule(nn.Module(), graph)))
    assert len(view.boxes) == 1
    assert view.edges == ()


def with_skips(skips: list[int]) -> View:
    """Return the view of calls in a row, each of which reads one further up too, with all groups open."""
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for skip in skips:
        nodes.append(graph.call_function(torch.add, (nodes[-1], nodes[-min(skip, len(nodes))])))
    graph.output(nodes[-1])
    hierarchy = build_hierarchy(fx.GraphModule(nn.Module(), graph))
    return View(hierarchy, frozenset(hierarchy.groups) - {""})


@settings(max_examples=8, deadline=None)
@given(st.integers(150, 450).flatmap(lambda n: st.lists(st.integers(1, 500), min_size=n, max_size=n)))
def test_each_value_that_is_read_has_a_line_or_a_reference_at_both_ends_and_no_line_is_long(skips):
    view = with_skips(skips)
    lines = {(edge.source.id, edge.target.id) for edge in view.edges}
    ends = {(id, chip.box.id, chip.end) for id, chips in view.chips.items() for chip in chips}
    place = {box.id: number for number, box in enumerate(view.boxes)}
    for leaf in view.hierarchy.leaves:
        for source in leaf.node.all_input_nodes:
            made, read = view.hierarchy.leaves[view.hierarchy.position_of[source.name]].id, leaf.id
            joined = (read, made, "source") in ends and (made, read, "target") in ends
            assert (made, read) in lines or joined or (read, made, "value") in ends
    ranks = sum(place[target] - place[source] for source, target in lines)
    assert ranks <= len(lines) * (LONGEST_COLUMN if len(place) > MOST_IN_A_COLUMN else MOST_IN_A_COLUMN)
    written = outline(view, make_boxes(view, {}, ())).splitlines()
    assert all(sum(line.startswith(f'"{id}" [id=') for line in written) == 1 for id in place)


def test_boxes_that_no_line_places_stand_in_rows_of_four():
    graph = fx.Graph()
    unread = [graph.placeholder(f"input_{number}") for number in range(6)]
    graph.output(graph.call_method("cos", (unread[0],)))
    view = View(build_hierarchy(fx.GraphModule(nn.Module(), graph)))
    assert [(upper.name, lower.name) for upper, lower in view.lonely] == [("input_1", "input_5")]


def test_the_main_path_leads_through_the_boxes_with_the_most_nodes():
    class Branches(nn.Sequential):
        def forward(self, x):
            return self.long(x) + self.short(x)

    parts = {"long": nn.Sequential(*(nn.ReLU() for _ in range(4))), "short": nn.Tanh()}
    hierarchy = build_hierarchy(fx.symbolic_trace(Branches(OrderedDict(parts))))
    ids = {leaf.name: leaf.id for leaf in hierarchy.leaves} | {"long": hierarchy.groups["long"].id}
    assert View(hierarchy).main_path == {*pairwise(ids[name] for name in ("x", "long", "add", "output"))}
