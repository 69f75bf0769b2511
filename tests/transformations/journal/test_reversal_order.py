"""Passes that build on each other are taken back in any order: what the laws once found to be wrong."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from exactness import assert_close, assert_is, snapshot, traced
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from fxlab import FuseBatchNorm1dInLinear, FuseBiasInLinear, MergeLinears

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


@dataclass(frozen=True)
class Sum:
    """A call that adds something to an activation of a negated value."""

    node: fx.Node

    @property
    def nodes(self):
        return (self.node,)
