"""The code of a graph and its nodes: where torch writes something else, a verdict says so."""

import copy

import pytest
import torch
from torch import nn

import fxlab

INPUTS = torch.tensor([[3.0, 2.0], [1.0, 4.0]])


class Alternates(nn.Module):
    """The sign of a power, which torch's code loses, added to something large."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.drop(x) + (-3) ** x


def test_code_that_loses_a_sign_is_a_difference():
    session = fxlab.Session(torch.fx.symbolic_trace(Alternates().eval()), INPUTS)
    session.apply("remove-identities")
    found = session.verdict()
    assert not torch.equal(session.original(INPUTS), session.graph_module(INPUTS))
    assert found.different
    assert "torch writes pow_1 otherwise" in found.reason


def test_a_graph_that_was_changed_and_not_compiled_again_is_a_difference():
    stale = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval())
    linear = next(node for node in stale.graph.nodes if node.op == "call_module")
    with stale.graph.inserting_after(linear):
        sign = stale.graph.call_function(torch.neg, (linear,))
    linear.replace_all_uses_with(sign, delete_user_cb=lambda user: user is not sign)
    session = fxlab.Session(stale, INPUTS).apply("remove-identities")
    assert "recompile" in session.verdict().reason


def test_a_file_whose_code_would_lose_a_sign_is_refused(tmp_path):
    session = fxlab.Session(lambda x: x + (-2) ** x.shape[0], INPUTS)
    with pytest.raises(RuntimeError, match="loses its sign"):
        fxlab.export(session, tmp_path / "sign.pt2")
    positive = fxlab.Session(lambda x: x + 2 ** x.shape[0], INPUTS)
    assert fxlab.export(positive, tmp_path / "power.pt2").verdict.agrees


class ByWeight(nn.Module):
    """A derivative with respect to a weight of the model."""

    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.factor = nn.Parameter(torch.randn(2, 2)), factor

    def forward(self, x):
        return torch.autograd.grad((x @ self.weight).exp().sum() * self.factor, self.weight)[0]


class ByHand(ByWeight):
    def forward(self, x):
        return x.T @ (x @ self.weight).exp() * self.factor


@pytest.mark.parametrize("ask", [fxlab.verdict, fxlab.compare])
def test_a_model_that_differentiates_by_its_own_weights_is_judged(ask):
    assert ask(ByWeight(), ByHand(), INPUTS).agrees
    assert not ask(ByWeight(), ByHand(1.001), INPUTS).agrees


def test_infinities_of_the_other_sign_are_named():
    found = fxlab.verdict(lambda x: x / 0, lambda x: x / -0.0, INPUTS)
    assert "4 of 4 infinite numbers have the other sign" in found.reason


def test_a_model_and_a_copy_of_its_graph_write_the_same_buffers():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    graph = fxlab.symbolic_trace(model, INPUTS)
    assert fxlab.verdict(model, copy.deepcopy(graph), INPUTS, gradients=True).agrees
