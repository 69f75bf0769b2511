"""Passes that build on each other are taken back in any order: what the laws once found to be wrong."""

import itertools
import operator
from dataclasses import dataclass

import pytest
import torch
from exactness import Apply, assert_close, assert_is, snapshot, traced
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from fxlab import FoldConstants, FuseBatchNorm1dInLinear, FuseBiasInLinear, MergeLinears, RemoveDeadCode
from fxlab.rewriting import RewritePass

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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_node_comes_back_with_what_another_pass_has_erased_since(order):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.constant = nn.Parameter(torch.arange(3.0), requires_grad=False)

        def forward(self, x):
            constant = self.constant
            return x + constant.sum() + constant.mean()

    gm = traced(Model())
    before = snapshot(gm)
    first, others = FoldConstants().only("sum_1"), FoldConstants()
    others(first(gm))
    assert [node.name for node in gm.graph.nodes][:3] == ["x", "sum_1", "add"]
    for position in order:
        (first, others)[position](gm, reverse=True)
        assert torch.equal(gm(torch.ones(3)), Model()(torch.ones(3)))
    assert_is(gm, before)


@dataclass(frozen=True)
class Sum:
    """A call that adds something to an activation of a negated value."""

    node: fx.Node

    @property
    def nodes(self):
        return (self.node,)


@dataclass(frozen=True, eq=False)
class ReadEarlier(RewritePass[Sum]):
    """Lets the sum, and what it has read, read the value itself."""

    def match(self, facts):
        yield from map(Sum, facts.graph_module.graph.find_nodes(op="call_function", target=operator.add))

    def refuse(self, candidate, facts):
        return None

    def describe(self, candidate):
        return "reads its input's input"

    def rewrite(self, candidate, edit):
        node, relu = candidate.node, candidate.node.args[0]
        value = relu.args[0].args[0]
        edit.change(node, args=(value, *node.args[1:]))
        edit.change(relu, args=(value,))
        return node


def test_what_a_pass_has_changed_and_another_erased_comes_back_in_its_place():
    model, x = Apply(lambda _, x: (-x).relu() + 1), torch.tensor([-2.0, 3.0])
    gm = traced(model)
    before, names = snapshot(gm), [node.name for node in gm.graph.nodes]
    earlier, dead = ReadEarlier(), RemoveDeadCode()
    dead(earlier(gm))
    assert [node.name for node in gm.graph.nodes] == ["x", "add", "output"]
    earlier(gm, reverse=True)
    gm.graph.lint()
    assert [node.name for node in gm.graph.nodes] == names
    assert torch.equal(gm(x), model(x))
    assert_is(dead(gm, reverse=True), before)
