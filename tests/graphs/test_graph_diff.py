"""What is different between two graphs, and what of it a pass has not owned up to."""

import copy
import operator

import pytest
import torch
from planted import scaled, traced, transformed
from torch import fx, nn

from fxlab import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    Transformation,
    compose,
    graph_diff,
)
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.transformations import available

PASSES = [
    ("llama", MergeLinears()),
    ("bert", FuseBiasInLinear()),
    ("resnet", FuseBatchNorm2dInConv2d()),
    ("t5", ChangeTrueDivToMulByInverse()),
    ("t5", MergeLinears()),
]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (self.linear(x) * self.scale + 1).relu().sum(dim=1)


class Writes(Transformation):
    """Does what a function does, which marks nodes or not."""

    def __init__(self, function):
        self.function = function

    def transform(self, graph_module):
        self.function(self, graph_module)
        return graph_module

    @property
    def signature(self):
        return "writes"


@pytest.fixture
def graph():
    return fx.symbolic_trace(Model())


def node_of(graph, name):
    return next(node for node in graph.graph.nodes if node.name == name)


def only_row(a, b):
    table = graph_diff(a, b)
    assert len(table) == 1, table
    return table.iloc[0]


def test_a_copy_does_not_differ(graph):
    assert graph_diff(graph, copy.deepcopy(graph)).empty
    assert list(graph_diff(graph, graph)) == [
        *("change", "differs", "op_before", "op", "target_before", "target"),
        *("inputs_before", "inputs", "module_path", "marked"),
    ]


@pytest.mark.parametrize(
    ("change", "node", "differs"),
    [
        (lambda gm: setattr(node_of(gm, "relu"), "target", "sigmoid"), "relu", ["target"]),
        (lambda gm: node_of(gm, "add").update_arg(1, 2), "add", ["arguments"]),
        (lambda gm: node_of(gm, "sum_1").update_kwarg("dim", 0), "sum_1", ["arguments"]),
        (lambda gm: gm.linear.weight.data.copy_(torch.zeros(4, 4)), "linear", ["values"]),
        (lambda gm: setattr(gm, "scale", nn.Parameter(torch.zeros(4))), "scale", ["values"]),
        (lambda gm: setattr(gm.linear, "in_features", 5), "linear", ["settings"]),
        (lambda gm: setattr(gm, "linear", nn.Identity()), "linear", ["settings", "values"]),
    ],
)
def test_a_changed_node_says_in_what_it_differs(graph, change, node, differs):
    other = copy.deepcopy(graph)
    change(other)
    row = only_row(graph, other)
    assert row.name == node
    assert (row["change"], row["differs"]) == ("changed", differs)


def test_removed_and_added_nodes_stand_where_they_were(graph):
    other = share_tensors_copy(graph)
    relu = node_of(other, "relu")
    with other.graph.inserting_before(relu):
        new = other.graph.call_function(torch.clamp, relu.args, {"min": 0})
    relu.replace_all_uses_with(new)
    other.graph.erase_node(relu)
    table = graph_diff(graph, other)
    assert table["change"].to_dict() == {"clamp": "added", "relu": "removed", "sum_1": "rewired"}
    assert table.loc["relu", ["op_before", "op", "target"]].tolist() == ["call_method", None, None]
    assert table.loc["clamp", "inputs_before"] is None


def test_nothing_has_to_be_run(graph):
    meta = copy.deepcopy(graph).to("meta")
    assert graph_diff(meta, copy.deepcopy(meta)).empty


def test_all_passes_together_own_up_to_what_they_change():
    graph, _ = traced("bert")
    everything = compose(*(cls() for cls in available()))
    assert graph_diff(graph, transformed(graph, everything))["marked"].all()


def test_the_pass_below_is_not_the_business_of_the_pass_above():
    graph, _ = traced("bert")
    merged = transformed(graph, MergeLinears())
    fused = transformed(merged, FuseBiasInLinear())
    assert graph_diff(merged, fused)["marked"].all()


def unmarked(before, after):
    table = graph_diff(before, after)
    return table.index[~table["marked"].astype(bool)].tolist()


def test_what_only_the_pass_below_has_marked_counts_for_neither(graph):
    below = transformed(graph, Writes(lambda pass_, gm: pass_.mark_as_transformed(node_of(gm, "relu"))))
    above = transformed(below, Writes(lambda pass_, gm: setattr(node_of(gm, "relu"), "target", "sigmoid")))
    assert unmarked(graph, above) == []
    assert unmarked(below, above) == ["relu"]


def test_an_unmarked_change_is_reported(graph):
    def change(pass_, gm):
        pass_.mark_as_transformed(node_of(gm, "add"))
        node_of(gm, "add").target = operator.sub
        node_of(gm, "relu").target = "sigmoid"

    pass_ = Writes(change)
    result = transformed(graph, pass_)
    assert unmarked(graph, result) == ["relu"]


def test_a_weight_that_was_written_in_secret_is_reported(graph):
    wrong = scaled(graph, "linear", 2.0)
    assert unmarked(graph, wrong) == ["linear"]


def test_readers_and_leftovers_of_marked_nodes_need_no_mark(graph):
    def replace(pass_, gm):
        relu = node_of(gm, "relu")
        with gm.graph.inserting_before(relu):
            new = gm.graph.call_function(torch.clamp, relu.args, {"min": 0})
        relu.replace_all_uses_with(new)
        gm.graph.erase_node(relu)
        if pass_.marks:
            pass_.mark_as_transformed(new)

    honest, secretive = Writes(replace), Writes(replace)
    honest.marks, secretive.marks = True, False
    assert len(graph_diff(graph, transformed(graph, honest))) == 3
    assert unmarked(graph, transformed(graph, honest)) == []
    assert unmarked(graph, transformed(graph, secretive)) == ["relu", "clamp", "sum_1"]


def test_wrong_arguments_are_named(graph):
    with pytest.raises(TypeError, match=r"reference: expected a torch.nn.Module, .* got 'linear'"):
        graph_diff("linear", graph)
    with pytest.raises(TypeError, match=r"candidate: expected a torch.nn.Module, .* got None"):
        graph_diff(graph, None)
