"""LintAndRecompile: checks the graph, writes the code anew, and changes nothing else."""

import operator

import pytest
import torch
from exactness import assert_is, snapshot, traced
from torch import nn

from fxlab import LintAndRecompile, MergeLinears, compose


class Sums(nn.Module):
    def forward(self, x):
        return (x + 1) * 2


@pytest.mark.parametrize("reverse", [False, True])
def test_the_code_follows_the_graph_and_nothing_else_changes(reverse):
    gm = traced(Sums())
    for node in gm.graph.find_nodes(op="call_function", target=operator.add):
        node.target = operator.sub
    before = snapshot(gm)
    assert gm(torch.tensor(3.0)) == 8
    assert LintAndRecompile()(gm, lint_and_recompile=False, reverse=reverse) is gm
    assert gm(torch.tensor(3.0)) == 4
    assert_is(gm, before)
    assert LintAndRecompile().get_transformed_nodes(gm) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_an_invalid_graph_is_not_compiled(reverse):
    gm = traced(Sums())
    code = gm.code
    _, add, mul, _ = gm.graph.nodes
    add.args = (mul, 1)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        LintAndRecompile()(gm, lint_and_recompile=False, reverse=reverse)
    assert gm.code == code


def test_a_part_of_a_composition_sees_compiled_code():
    gm = traced(nn.Sequential(nn.Linear(2, 2)))
    composition = compose(MergeLinears(), LintAndRecompile(), MergeLinears())
    before = snapshot(gm)
    assert_is(composition(composition(gm), reverse=True), before)
