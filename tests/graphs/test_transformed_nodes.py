"""The table of changed nodes."""

import pytest
import torch
from planted import traced, transformed
from torch import nn

from fxlab import FuseBatchNorm2dInConv2d, FuseBiasInLinear, MergeLinears, RemoveIdentities, from_callable
from fxlab.rewriting import transformed_nodes


@pytest.fixture
def fused():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    fuse = FuseBatchNorm2dInConv2d()
    return fuse(torch.fx.symbolic_trace(model)), fuse


def test_a_changed_node_is_described(fused):
    table = transformed_nodes(*fused)
    assert len(table) == 1
    row = table.iloc[0]
    assert row["op"] == "call_module"
    assert row["parameters"] == 8 * 3 * 9 + 8
    assert row["inputs"] == ["input_1"]
    assert len(row["users"]) == 1


def test_without_a_transformation_every_marked_node_is_listed(fused):
    module, fuse = fused
    assert transformed_nodes(module).equals(transformed_nodes(module, fuse))


def test_an_untouched_module_has_an_empty_table_with_columns():
    module = torch.fx.symbolic_trace(nn.ReLU())
    table = transformed_nodes(module, FuseBatchNorm2dInConv2d())
    assert table.empty
    assert list(table) == ["op", "target", "module_path", "shape", "dtype", "parameters", "inputs", "users"]


def test_wrong_arguments_are_named(fused):
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, .* got 'model'"):
        transformed_nodes("model")
    with pytest.raises(TypeError, match=r"pass_: expected an fxlab.Transformation, got 'merge-linears'"):
        transformed_nodes(fused[0], "merge-linears")
    with pytest.raises(TypeError, match=r"original: expected a torch.nn.Module, .* got 'model'"):
        transformed_nodes(*fused, original="model")


def test_before_and_after_stand_side_by_side():
    graph, _ = traced("resnet")
    fuse = FuseBatchNorm2dInConv2d()
    module = transformed(graph, fuse)
    table = transformed_nodes(module, fuse, original=graph)
    assert list(table) == [
        *("before", "op_before", "op", "target_before", "target", "module_path", "shape_before", "shape"),
        *("dtype_before", "dtype", "parameters_before", "parameters", "inputs_before", "inputs", "users"),
    ]
    row = table.loc["embedder_embedder_convolution"]
    assert row["before"] == ["embedder_embedder_convolution", "embedder_embedder_normalization"]
    assert row["target_before"] == ["embedder.embedder.convolution", "embedder.embedder.normalization"]
    assert row["parameters_before"] == [8 * 3 * 49, 16]
    assert row["parameters"] == 8 * 3 * 49 + 8
    assert row["shape_before"][0] == row["shape"]


def test_what_passes_did_on_top_of_each_other_goes_back_to_the_original():
    graph, _ = traced("bert")
    merged = transformed(graph, MergeLinears())
    table = transformed_nodes(transformed(merged, FuseBiasInLinear()), original=graph)
    assert len(table.loc["query_key_value_merged", "before"]) == 3
    assert table.loc["pooler_dense", "before"] == ["pooler_dense"]
    below = transformed_nodes(transformed(merged, FuseBiasInLinear()), original=merged)
    assert below.loc["query_key_value_merged", "before"] == ["query_key_value_merged"]


def test_a_node_that_reads_another_value_stands_for_itself_alone():
    graph, _ = traced("bert")
    removed = transformed(graph, RemoveIdentities())
    table = transformed_nodes(removed, original=graph)
    assert len(table) > 3
    assert table["before"].tolist() == [[name] for name in table.index]
    merged = transformed_nodes(transformed(removed, MergeLinears()), original=graph)
    prefix = "encoder_layer_0_attention_self_"
    assert merged.loc["query_key_value_merged", "before"] == [prefix + n for n in ("query", "key", "value")]


def test_what_a_function_did_in_many_places_is_told_apart():
    def relu_to_clamp(graph_module):
        for node in graph_module.graph.find_nodes(op="call_module"):
            if isinstance(graph_module.get_submodule(node.target), nn.ReLU):
                with graph_module.graph.inserting_before(node):
                    new = graph_module.graph.call_function(torch.clamp, node.args, {"min": 0})
                node.replace_all_uses_with(new)
                graph_module.graph.erase_node(node)
        return graph_module

    layers = [nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)]
    graph = torch.fx.symbolic_trace(nn.Sequential(*layers))
    pass_ = from_callable(relu_to_clamp)
    table = transformed_nodes(transformed(graph, pass_), pass_, original=graph)
    assert table.loc[["clamp", "clamp_1"], "before"].tolist() == [["_1"], ["_3"]]
