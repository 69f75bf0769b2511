"""DeepCopy: a copy with marks and all, that shares nothing with the original."""

import pytest
import torch
from exactness import assert_close, assert_equals, assert_is, snapshot, traced
from torch import nn

from fxlab import DeepCopy, MergeLinears


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(6, 4), nn.Linear(6, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        return self.query(x) * self.key(x) / 8 + self.scale


@pytest.mark.parametrize("reverse", [False, True])
def test_the_copy_is_equal_and_shares_nothing(reverse):
    model, x = Attention().eval(), torch.randn(2, 6)
    gm = traced(model)
    before = snapshot(gm)
    other = DeepCopy()(gm, reverse=reverse)
    assert other is not gm
    assert_equals(other, before)
    assert_close(other(x), model(x), 0.0)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    MergeLinears()(other)
    assert_is(gm, before)


def test_no_node_is_marked_by_it():
    gm = traced(Attention())
    assert DeepCopy().get_transformed_nodes(DeepCopy()(gm)) == []


def test_nodes_keep_their_names_after_others_are_gone():
    gm = traced(Attention())
    for node in list(gm.graph.nodes):
        if node.name.startswith("mul"):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.name = f"{node.name}_07"
    before = snapshot(gm)
    assert_equals(DeepCopy()(gm), before)
