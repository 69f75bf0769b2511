"""Passes that build on each other are taken back in any order: what the laws once found to be wrong."""

import itertools
import operator
from dataclasses import dataclass

import pytest
import torch
from exactness import assert_close, assert_is, snapshot, traced
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from fxlab import ChangeTrueDivToMulByInverse, FuseBatchNorm1dInLinear, FuseBiasInLinear, MergeLinears

PASSES = (FuseBatchNorm1dInLinear(), MergeLinears(), FuseBiasInLinear())
orders = pytest.mark.parametrize(
    ("applied", "reversed_"), list(itertools.product(itertools.permutations(PASSES), repeat=2))
)


def check(model, applied, reversed_):
    """Apply and reverse, compare after each step; in the end the module must be what it was."""
    x = torch.randn(3, 4)
    gm, expected = traced(model), model(x)
    ShapeProp(gm).propagate(x)
    before = snapshot(gm)
    for pass_ in applied:
        pass_(gm)
    for pass_ in reversed_:
        pass_(gm, reverse=True)
        assert_close(gm(x), expected)
    assert_is(gm, before)


@pytest.mark.often(8)
@orders
def test_a_batch_norm_comes_back_before_the_padding_of_what_reads_it(applied, reversed_):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last, self.out = (nn.Linear(4, 4) for _ in range(4))
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            first, second = self.first(x), self.second(x)
            return first, self.out(self.norm(second)), self.last(x)

    check(Model().eval(), applied, reversed_)


def test_a_node_that_comes_back_reads_what_has_replaced_its_input_by_hand():
    gm, x = ChangeTrueDivToMulByInverse()(fx.symbolic_trace(lambda x: x.sin() / 8)), torch.randn(3)
    (node,) = gm.graph.find_nodes(op="call_method", target="sin")
    with gm.graph.inserting_before(node):
        node.replace_all_uses_with(gm.graph.call_method("cos", node.args))
    gm.graph.erase_node(node)
    ChangeTrueDivToMulByInverse()(gm, reverse=True)
    assert [node.target for node in gm.graph.nodes] == ["x", "cos", operator.truediv, "output"]
    assert torch.equal(gm(x), x.cos() / 8)


@dataclass(frozen=True)
class Sum:
    """A call that adds something to an activation of a negated value."""

    node: fx.Node

    @property
    def nodes(self):
        return (self.node,)
