"""The table of changed nodes."""

import pytest
import torch
from torch import nn

from fxlab import FuseBatchNorm2dInConv2d, transformed_nodes


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


def test_shapes_come_from_shape_propagation():
    from torch.fx.passes.shape_prop import ShapeProp

    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4)))
    ShapeProp(module).propagate(torch.ones(2, 3))
    for node in module.graph.nodes:
        node.meta["transformations"] = {"mark"}
    table = transformed_nodes(module)
    assert table.loc["_0", "shape"] == (2, 4)
    assert table.loc["_0", "dtype"] == "float32"


def test_wrong_arguments_are_named(fused):
    with pytest.raises(TypeError, match=r"graph_module: expected a torch.fx.GraphModule, got str"):
        transformed_nodes("model")
    with pytest.raises(TypeError, match=r"transformation: expected an fxlab.Transformation, got str"):
        transformed_nodes(fused[0], "merge-linears")
