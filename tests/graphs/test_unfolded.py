"""Bodies of a graph as a part of it: which nodes are theirs."""

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from fxlab.graphs.unfolded import _PASS_ON, is_in_body, unfolded


def either(x):
    y = x.exp()
    return torch.cond(y.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (y,))


def test_nodes_of_bodies_are_told_from_those_around_and_read_what_is_passed():
    gm = unfolded(make_fx(either)(torch.ones(2)))
    inside = [node for node in gm.graph.nodes if is_in_body(node)]
    calls = [node.name for node in inside if node.op == "call_function"]
    assert calls == ["true_graph_0/sin", "false_graph_0/cos"]
    passed = [node for node in inside if node.name.endswith("/arg0_1")]
    assert [list(map(str, node.all_input_nodes)) for node in passed] == [["exp"], ["exp"]]


def test_annotations_of_the_model_stay():
    graph = fx.Graph()
    graph.output(graph.call_module("body", (graph.placeholder("x", type_expr=torch.Tensor),)))
    inner = fx.Graph()
    inner.output(inner.placeholder("y", type_expr=torch.Tensor))
    gm = unfolded(fx.GraphModule({"body": fx.GraphModule({}, inner)}, graph))
    assert {node.name: node.type for node in gm.graph.find_nodes(op="placeholder")}["x"] is torch.Tensor


@pytest.mark.parametrize("name", sorted(_PASS_ON))
def test_operators_that_pass_values_to_bodies_are_torchs(name):
    assert hasattr(torch.ops.higher_order, name)
