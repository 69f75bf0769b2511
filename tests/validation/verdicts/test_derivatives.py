"""Models that take derivatives in their forward, as force fields do: what runs a model runs them too."""

import copy

import pytest
import torch
from torch import nn

import fxlab
from fxlab import first_divergence, profile, verdict
from fxlab.validation import Status

POSITIONS = torch.randn(5, 3)


class ForceField(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, positions):
        positions.requires_grad_()
        energy = self.outer(torch.tanh(self.inner(positions)) / 3).sum()
        return energy, -torch.autograd.grad(energy, positions)[0]


@pytest.fixture(scope="module")
def graph():
    torch.manual_seed(0)
    return fxlab.symbolic_trace(ForceField().eval(), POSITIONS)


@pytest.fixture
def divided(graph):
    """The graph with a rewrite of what the derivative is of."""
    return fxlab.ChangeTrueDivToMulByInverse()(copy.deepcopy(graph))


@pytest.fixture
def wrong(divided):
    with torch.no_grad():
        divided.get_submodule("outer").weight.mul_(1.01)
    return divided


def test_a_profile_has_each_node(graph):
    table = profile(graph, POSITIONS)
    assert {node.name for node in graph.graph.nodes if node.op != "output"} == set(table.index)


def test_the_node_that_goes_wrong_is_found(graph, wrong):
    assert first_divergence(graph, wrong, POSITIONS).original == "outer"


def test_there_is_a_verdict(graph, divided):
    assert verdict(graph, divided, POSITIONS).agrees


def test_a_mistake_is_told(graph, wrong):
    assert verdict(graph, wrong, POSITIONS).status is Status.DIFFERENT
