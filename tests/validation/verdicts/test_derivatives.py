"""Models that take derivatives in their forward, as force fields do: what runs a model runs them too."""

import copy

import pytest
import torch
from torch import nn

import fxlab
from fxlab import compare_nodes, first_divergence, profile, verdict
from fxlab.models.running.running import run
from fxlab.validation import Status
from fxlab.validation.outputs.computed_tensors import observed

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


def test_nodes_are_compared(graph, divided):
    table = compare_nodes(graph, divided, POSITIONS)
    assert table["introduced"].max() < 1e-6
    assert first_divergence(graph, divided, POSITIONS) is None


def test_the_node_that_goes_wrong_is_found(graph, wrong):
    assert first_divergence(graph, wrong, POSITIONS).original == "outer"


def test_there_is_a_verdict(graph, divided):
    assert verdict(graph, divided, POSITIONS).agrees


def test_a_mistake_is_told(graph, wrong):
    assert verdict(graph, wrong, POSITIONS).status is Status.DIFFERENT


def test_a_module_that_turns_out_to_need_gradients_runs_anew_from_the_same_state():
    class Counting(ForceField):
        def __init__(self):
            super().__init__()
            self.register_buffer("runs", torch.zeros(()))

        def forward(self, positions):
            self.runs += 1
            return self.runs, *super().forward(positions)

    model = Counting()
    assert observed(model, "model", POSITIONS).returned["0"] == 1
    assert model.runs == 0
    assert not run(ForceField(), POSITIONS)[1].requires_grad
