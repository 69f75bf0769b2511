"""A graph that depends on the mode, training or evaluation, refuses the other one when it runs."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxlab
from fxlab import FuseBatchNorm2dInConv2d, RemoveIdentities

X = torch.randn(3, 4)


class Noisy(nn.Module):
    """Reads its own mode, by which it hands on more than a flag."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.linear(x)
        return F.dropout(x, 0.5, self.training) if not self.training else self.drop(x) * 2


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).relu()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", [Noisy(), Around(Noisy())])
def test_the_other_mode_is_refused(model, training):
    traced = fxlab.symbolic_trace(model.train(training), X)
    mode, other = ("training", "evaluation") if training else ("evaluation", "training")
    for graph in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        graph(X)
        graph.train(not training)
        with pytest.raises(AssertionError, match=f"traced for {mode} mode; .* is in {other} mode now"):
            graph(X)
        graph.train(training)
        graph(X)
    assert traced.meta["trace"].of_kind("mode")


def test_a_part_in_another_mode_is_refused():
    traced = fxlab.symbolic_trace(Around(Noisy()).eval(), X)
    traced.inner.train()
    with pytest.raises(AssertionError, match="inner is in training mode now"):
        traced(X)


class Chain(nn.Module):
    """Reads its mode in each step."""

    def __init__(self, step):
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), step

    def forward(self, x):
        for _ in range(20):
            x = F.softmax(x + x.sum(0, keepdim=True) / x.shape[0], -1).view(x.shape)
            x = self.step(x, self.training)
        return self.linear(x)


def in_training(change):
    return lambda x, training: change(x) if training else x


@pytest.mark.parametrize(
    "step",
    [
        in_training(lambda x: x * 2.0),
        in_training(lambda x: x * 2.0 if x.shape[0] > 3 else x),
        in_training(lambda x: x.requires_grad_()),
        in_training(lambda x: x.mul_(2.0)),
        in_training(lambda x: x if x.stride(0) == 4 else x * 2.0),
        in_training(lambda x: torch.rand(3)[0] * x),
    ],
)
def test_another_call_in_the_other_mode_is_seen_among_equal_ones(step):
    traced = fxlab.symbolic_trace(Chain(step).eval(), X)
    traced(torch.randn(5, 4))
    with pytest.raises(AssertionError, match="traced for evaluation mode"):
        traced.train()(torch.randn(5, 4))


class SetsItsMode(nn.Module):
    """Drops values in evaluation as well, as for Monte Carlo dropout."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x):
        self.drop.train()
        return self.drop(x)


def test_a_mode_that_the_model_sets_is_held_in_both_modes():
    model = SetsItsMode().eval()
    traced = fxlab.symbolic_trace(model, X)
    assert not model.drop.training
    for training in (False, True):
        assert (traced.train(training)(torch.ones(50, 4)) == 0).any()


def test_functions_that_are_traced_into_hold_the_mode():
    model = nn.Sequential(nn.Dropout(0.5)).eval()
    traced = fxlab.symbolic_trace(model, X, leaf_modules=lambda module, path: False).train()
    with pytest.raises(AssertionError, match="traced for evaluation mode; 0 is in training mode"):
        traced(X)


def test_the_check_can_be_compiled_and_exported():
    traced = fxlab.symbolic_trace(Noisy().eval(), X, check=False)
    assert torch.equal(torch.compile(traced, backend="eager", fullgraph=True)(X), traced(X))
    assert torch.equal(torch.export.export(traced, (X,)).module()(X), traced(X))


@pytest.mark.parametrize("training", [False, True])
def test_an_exported_graph_refuses_the_other_mode(training):
    program = torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train(training), (X,))
    graph = fxlab.from_exported(program)
    graph(X)
    with pytest.raises(AssertionError, match="traced for"):
        graph.train(not training)(X)


IMAGES = torch.randn(2, 3, 5, 5)


@pytest.mark.parametrize(
    ("pass_", "model"),
    [
        (RemoveIdentities(), nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout(), nn.ReLU())),
        (FuseBatchNorm2dInConv2d(), nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))),
    ],
)
def test_a_pass_that_is_right_in_evaluation_only_refuses_training(pass_, model):
    session = fxlab.Session(fxlab.symbolic_trace(model.eval(), IMAGES), IMAGES, passes=[pass_])
    session.apply(pass_)
    assert session.verdict().agrees
    for graph in (session.graph_module, pickle.loads(pickle.dumps(session.graph_module))):
        graph.train()
        with pytest.raises(AssertionError, match=r"was applied for evaluation mode; .* in training mode"):
            graph(IMAGES)
        reversed_ = pass_(graph, reverse=True)
        reversed_(IMAGES)
        assert not any("evaluation_mode" in path for path, _ in reversed_.named_modules())


def test_the_run_in_the_other_mode_ends_before_a_draw_that_this_one_does_not_make(capsys):
    class AddsNoise(nn.Module):
        def forward(self, x):
            if self.training:
                x = x + torch.rand_like(x)
                print("drawn")
            return x * 2

    traced = fxlab.symbolic_trace(AddsNoise().eval(), X)
    assert "drawn" not in capsys.readouterr().out
    with pytest.raises(AssertionError, match="mode"):
        traced.train()(X)
    assert "rand_like" in fxlab.symbolic_trace(AddsNoise(), X).code
