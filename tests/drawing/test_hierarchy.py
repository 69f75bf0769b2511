import operator
from collections import OrderedDict

import pytest
import torch
from drawing_models import Bert, Convolutions, Llama, flat_chain
from torch import fx, nn

from fxlab.drawing import Group, build_hierarchy
from fxlab.drawing.rendering.box import lines_of


def traced(model: nn.Module) -> fx.GraphModule:
    return fx.symbolic_trace(model)


def every_name(gm: fx.GraphModule) -> list[str]:
    return sorted(node.name for node in gm.graph.nodes)


def names_in(hierarchy) -> list[str]:
    return sorted(name for leaf in hierarchy.leaves for name in leaf.names)


@pytest.mark.parametrize("model", [Bert(), Llama(), Convolutions()], ids=lambda m: type(m).__name__)
def test_every_node_is_drawn_by_exactly_one_leaf(model):
    gm = traced(model)
    hierarchy = build_hierarchy(gm)
    assert names_in(hierarchy) == every_name(gm)
    assert hierarchy.root.nodes == len(gm.graph.nodes)


@pytest.mark.slow
def test_leaves_of_a_group_are_consecutive_and_graph_edges_are_kept():
    hierarchy = build_hierarchy(traced(Bert()))
    for group in hierarchy.groups.values():
        inside = [leaf.start for leaf in hierarchy.leaves if is_inside(hierarchy, leaf, group)]
        assert inside == list(range(group.start, group.stop))


def is_inside(hierarchy, leaf, group) -> bool:
    return group.path == "" or group.path in hierarchy.ancestors(leaf.name)


def test_equal_layers_fold_into_one_run_and_very_many_into_a_run_of_shorter_ones():
    groups = build_hierarchy(traced(Bert(layers=100))).groups
    run = groups["encoder.layer.[0-99]"]
    assert (run.kind, run.members, run.class_name) == ("repeat", 100, "Block")
    assert run.label == "layer 0–99"  # noqa: RUF001
    assert [child.path for child in run.children] == ["encoder.layer.0", "encoder.layer.[1-99]"]
    spans = ["[1-32]", "[33-64]", "[65-96]", "[97-99]"]
    assert [child.path for child in run.children[1].children] == [f"encoder.layer.{span}" for span in spans]


@pytest.mark.parametrize("part", ["target", "args"])
def test_a_layer_whose_nodes_call_or_read_others_splits_the_run(part):
    gm = traced(Bert(layers=6))
    added = next(n for n in gm.graph.nodes if n.target is operator.add and "layer.2" in str(n.meta))
    setattr(added, part, {"target": operator.mul, "args": added.args[::-1]}[part])
    paths = set(build_hierarchy(gm).groups)
    assert {"encoder.layer.[0-1]", "encoder.layer.2", "encoder.layer.[3-5]"} <= paths


def test_a_layer_that_is_marked_otherwise_splits_the_run():
    gm = traced(Bert(layers=6))
    names = [node.name for node in gm.graph.nodes if node.target is operator.truediv]
    marks = {name: ("b" if number == 2 else "a",) for number, name in enumerate(names)}
    paths = set(build_hierarchy(gm, marks).groups)
    assert {"encoder.layer.[0-1]", "encoder.layer.2", "encoder.layer.[3-5]"} <= paths
    assert "encoder.layer.[0-5]" in build_hierarchy(gm, dict.fromkeys(names, ("a",))).groups


def test_a_run_ends_where_a_number_is_missing_or_a_width_differs():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [3] * 9 + [4]
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3, width), nn.ReLU()) for width in widths)

        def forward(self, x):
            for index in (0, 2, 5, 6, 8, 9):
                x = self.layers[index](x)
            return x

    paths = {path for path in build_hierarchy(traced(Skips())).groups if path.startswith("layers.")}
    assert paths == {"layers.[5-6]", *(f"layers.{index}" for index in (0, 2, 5, 6, 8, 9))}


def side_by_side(count, *, operation=torch.relu, node=None):
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = [graph.call_function(operation, (x,)) for _ in range(count)]
    if node is not None:
        node(graph, made)
    graph.output(tuple(made))
    return fx.GraphModule(nn.Module(), graph)


class Named:
    """A target of its own in each node, as what rebuilds an object has one."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, x):
        return x


def test_equal_nodes_side_by_side_fold_into_one_row():
    hierarchy = build_hierarchy(side_by_side(12))
    row = hierarchy.groups["#row:relu"]
    assert (row.kind, row.class_name, row.members, row.label) == ("repeat", "relu", 12, "relu … relu_11")
    assert [child.name for child in row.children] == ["relu", *(f"relu_{i}" for i in range(1, 12))]
    assert not [g for g in build_hierarchy(side_by_side(7)).groups if "row" in g]


def test_rows_are_made_of_nodes_that_read_alike_and_not_each_other():
    same = side_by_side(0, node=lambda g, made: made.extend(
        g.call_function(Named("layer"), (next(iter(g.nodes)),)) for _ in range(9)))  # fmt: skip
    assert build_hierarchy(same).groups["#row:layer"].members == 9
    two = side_by_side(0, node=lambda g, made: made.extend(
        g.call_function(Named("ab"[i > 4]), (next(iter(g.nodes)),)) for i in range(10)))  # fmt: skip
    assert len(build_hierarchy(two).groups) == 1
    assert len(build_hierarchy(flat_chain(40)).groups) == 1

    def every_second(graph, made):
        for i in range(10):
            made.append(graph.call_function(torch.relu, (made[i - 2] if i > 1 else next(iter(graph.nodes)),)))

    assert len(build_hierarchy(side_by_side(0, node=every_second)).groups) == 1


def test_many_equal_inputs_fold_and_few_do_not():
    graph = fx.Graph()
    inputs = [graph.placeholder(f"past_{i}") for i in range(20)]
    graph.output(tuple(inputs))
    assert build_hierarchy(fx.GraphModule(nn.Module(), graph)).groups["#row:past_0"].members == 20


def test_parameters_count_once_and_get_attr_nodes_fold_into_their_reader():
    model = Llama(layers=2)
    gm = traced(model)
    hierarchy = build_hierarchy(gm)
    assert hierarchy.root.parameters == sum(p.numel() for p in model.parameters())
    assert not [leaf for leaf in hierarchy.leaves if leaf.node.op == "get_attr"]


def test_unread_parameters_are_drawn_with_a_node_of_their_module():
    gm = traced(Bert())
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        unread = gm.graph.get_attr("encoder.layer.0.norm.weight")
    leaf = build_hierarchy(gm).leaves[build_hierarchy(gm).position_of[unread.name]]
    assert leaf.path.startswith("encoder.layer.0")


def test_without_metadata_groups_come_from_targets_and_neighbours():
    gm = traced(Bert())
    for node in gm.graph.nodes:
        node.meta.clear()
    hierarchy = build_hierarchy(gm)
    softmax = next(leaf for leaf in hierarchy.leaves if leaf.node.target == "softmax")
    assert softmax.path == "encoder.layer.0.attention"
    assert hierarchy.groups["encoder.layer.[0-3]"].members == 4


def test_a_node_made_by_a_pass_joins_its_neighbours():
    gm = traced(Bert())
    query = next(n for n in gm.graph.nodes if n.target == "encoder.layer.1.attention.query")
    with gm.graph.inserting_after(query):
        new = gm.graph.call_function(torch.neg, (query,))
    query.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    assert build_hierarchy(gm).ancestors(new.name)[-1] == "encoder.layer.1.attention"


def test_a_constant_lies_with_what_is_made_of_it_not_where_that_is_read():
    gm = traced(Bert())
    given = gm.graph.find_nodes(op="placeholder")[-1]
    layer = next(n for n in gm.graph.nodes if n.target == "encoder.layer.1.attention.query")
    with gm.graph.inserting_after(given):
        zeros = gm.graph.call_function(torch.zeros, ((),))
    with gm.graph.inserting_after(zeros):
        mask = gm.graph.call_function(torch.where, (given, zeros, -1.0))
    layer.args = (mask,)
    hierarchy = build_hierarchy(gm)
    assert hierarchy.ancestors(zeros.name) == hierarchy.ancestors(mask.name) == []


def test_a_module_called_twice_makes_two_groups():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x):
            return self.block(self.block(x))

    assert {"block", "block@1"} <= set(build_hierarchy(traced(Twice())).groups)


def test_interleaved_nodes_of_one_call_stay_in_one_group():
    graph = fx.Graph()
    x = graph.placeholder("x")
    values = [x, x]
    for number in range(6):
        values[number % 2] = graph.call_function(torch.relu, (values[number % 2],))
        path = "ab"[number % 2]
        values[number % 2].meta["nn_module_stack"] = OrderedDict({path: (path, nn.Module)})
    graph.output(tuple(values))
    hierarchy = build_hierarchy(fx.GraphModule(nn.Module(), graph))
    assert [g.path for g in hierarchy.root.children if isinstance(g, Group)] == ["a", "b"]
    assert hierarchy.groups["a"].nodes == 3


def test_exported_stacks_with_class_names_are_read():
    exported = torch.export.export(Bert(layers=2), (torch.ones(1, 4, dtype=torch.long), torch.ones(1, 4)))
    groups = build_hierarchy(exported.module()).groups
    assert groups["encoder.layer.[0-1]"].class_name == "Block"


@pytest.mark.parametrize(
    "stack", ["no dict", {"a": None}, {1: (2, 3)}, {"a": ("a", "b", "c")}, {"x.0": ("x.0", 7)}]
)
def test_odd_stacks_break_nothing(stack):
    gm = flat_chain(3)
    for node in gm.graph.nodes:
        node.meta["nn_module_stack"] = stack
    assert names_in(build_hierarchy(gm)) == every_name(gm)


class Block(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.parts = nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)), nn.ReLU())

    def forward(self, x):
        return self.parts(x)


class Lists(nn.Module):
    """Blocks of other sizes each, between single operations."""

    def __init__(self, operations: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(Block(depth) for depth in (1, 2, 3, 4))
        self.up = nn.ModuleList(Block(depth) for depth in (2, 1))
        self.operations = operations

    def forward(self, x):
        for block in self.down:
            x = block(x)
        for _ in range(self.operations):
            x = torch.neg(x)
        for block in self.up:
            x = block(x)
        return x


def test_blocks_of_one_list_are_one_box_where_the_graph_has_too_many():
    long, short = (build_hierarchy(fx.symbolic_trace(Lists(operations))) for operations in (12, 2))
    down = next(child for child in long.root.children if isinstance(child, Group))
    assert (down.label, down.kind) == ("down", "segment")
    assert [child.path for child in down.children] == [f"down.{i}" for i in range(4)]
    assert lines_of(down, long.modules)[-1].startswith("Block ")
    assert [child.path for child in long.root.children if isinstance(child, Group)][1:] == ["up.0", "up.1"]
    assert "down.0" in [child.path for child in short.root.children if isinstance(child, Group)]
    assert names_in(long) == every_name(traced(Lists(12)))


def test_a_list_of_thousands_is_cut_into_stretches_of_shown_size():
    hierarchy = build_hierarchy(flat_chain(5000))
    assert all(len(group.children) <= 150 for group in hierarchy.groups.values())
    assert len(hierarchy.leaves) == 5002
