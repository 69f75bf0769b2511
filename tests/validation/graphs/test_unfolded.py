"""Bodies of a graph as a part of it: which nodes are theirs."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxlab.validation.graphs.unfolded import is_in_body, unfolded


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
