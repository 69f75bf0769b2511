"""EliminateCommonSubexpressions: what is the same is computed once; what only looks the same is not."""

import math
import operator

import pytest
import torch
from exactness import Apply, assert_close, check, refused, traced, traced_whole
from torch import fx, nn
from torch.nn import functional as F

from fxlab import EliminateCommonSubexpressions

ONCE = EliminateCommonSubexpressions()


def names(gm):
    return [node.name for node in gm.graph.nodes]


def why_not(model, x=None):
    """Check that a model is left alone, and computes the same; return the codes of the reasons."""
    gm = traced(model)
    codes = refused(ONCE, gm)
    if x is not None:
        assert_close(gm(x.clone()), model(x.clone()), 0.0)
    return codes


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda _, x: x.relu() + x.relu(), 2),
        (lambda _, x: torch.relu(x) * (torch.relu(x) + torch.relu(x)), 3),
        (lambda _, x: (x * 2).sum() + (x * 2).sum(), 3),
        (lambda _, x: x.transpose(0, 1) @ x + x.transpose(0, 1), 3),
        (lambda _, x: x.view(x.size(0), -1) + x.reshape(x.size(0), -1), 4),
        (lambda _, x: x[..., 1:] + x[..., 1:] * x[..., None, 1:], 4),
        (lambda _, x: torch.cat([x, x]) + torch.cat([x, x]), 2),
        (lambda _, x: x.softmax(dim=-1) + x.softmax(dim=-1), 2),
        (lambda _, x: x / math.nan + x / math.nan, 2),
        (lambda self, x: self.a(x) + self.a(x), 2),
        (lambda self, x: self.norm(x) + self.norm(x), 3),  # and the check of the mode
        (lambda self, x: F.linear(x, self.a.weight) + F.linear(x, self.a.weight), 3),
        (lambda _, x: x.new_zeros(3) + x + x.new_zeros(3), 3),
    ],
)
def test_what_is_the_same_is_computed_once(function, calls):
    model = Apply(function, a=nn.Linear(3, 3), norm=nn.BatchNorm1d(3))
    gm = traced(model)
    ONCE(gm)
    marked = len(ONCE.get_transformed_nodes(gm))
    assert marked
    gm = check(ONCE, model, torch.randn(3, 3), marked=marked, tolerance=0.0)
    assert len(gm.graph.nodes) == calls + 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.relu() * x.tanh(),
        lambda x: x.sum(0) + x.sum(1),
        lambda x: torch.stack([x * 1, x * 1.0, x * True]),
        lambda x: torch.stack([x.new_full((3,), 0.0), x.new_full((3,), -0.0)]),
        lambda x: x.sum(0) + x.sum(dim=0),
        lambda x: x.to(torch.float64) + x.to(torch.float32),
    ],
)
def test_what_only_looks_the_same_is_no_candidate(function):
    gm = traced(Apply(lambda _, x: function(x)))
    assert ONCE.explain(gm).empty
    check(ONCE, Apply(lambda _, x: function(x)), torch.randn(3, 3), marked=0, tolerance=0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: torch.rand_like(x) + torch.rand_like(x),
        lambda self, x: torch.bernoulli(x) + torch.bernoulli(x),
        lambda self, x: F.dropout(x) + F.dropout(x),
        lambda self, x: self.drop(x) + self.drop(x),
        lambda self, x: self.norm(x) + self.norm(x),
        lambda self, x: x.add_(1) + x.add_(1),
        lambda self, x: F.relu(x, inplace=True) + F.relu(x, inplace=True),
        lambda self, x: self.a(x) + self.b(x),
    ],
)
def test_what_has_effects_is_random_or_of_other_weights_is_no_candidate(function):
    linears = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}
    model = Apply(function, drop=nn.Dropout(), norm=nn.BatchNorm1d(3), **linears).train()
    assert ONCE.explain(traced(model)).empty


APART = {
    "written-in-place": [
        lambda x: ((x * 2).add_(1), x * 2 + 1),
        lambda x: (x * 2 + 1, (x * 2).add_(1).sum()),
        lambda x: ((x * 2).view(-1).add_(1), (x * 2).sum()),
        lambda x: (x.new_zeros(3).add_(x), x.new_zeros(3) + x),
    ],
    "both-returned": [
        lambda x: (x * 2, x * 2),
        lambda x: (x.view(-1), x.view(-1)),
        lambda x: (x.new_zeros(3), x.new_zeros(3)),
    ],
    "both-aliased": [lambda x: {"a": x * 2, "b": (x * 2).view(-1)}],
}


@pytest.mark.parametrize(("code", "function"), [(code, each) for code in APART for each in APART[code]])
def test_results_that_are_written_or_returned_stay_two_tensors(code, function):
    assert why_not(Apply(lambda _, x: function(x)), torch.randn(3)) == code


def test_of_three_one_may_be_returned_and_a_second_may_not():
    model = Apply(lambda _, x: (x * 2, (x * 2).sum(), x * 2))
    gm = check(ONCE, model, torch.randn(3), marked=1, tolerance=0.0)
    first, _, second = gm(torch.randn(3))
    assert first is not second
    model = Apply(lambda _, x: ((x * 2).sum(), x * 2, (x * 2).mean(), x * 2))
    gm = check(ONCE, model, torch.randn(3), marked=2, tolerance=0.0)
    _, first, _, second = gm(torch.randn(3))
    assert first is not second


def test_a_change_of_grad_mode_keeps_them_apart():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    b = graph.call_function(torch.relu, (x,))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output(graph.call_function(torch.add, (a, b)))
    assert refused(ONCE, fx.GraphModule(nn.Module(), graph)) == "mode-changes-in-between"


def test_hooked_modules_and_subclasses_are_called_as_often_as_before():
    class Counts(nn.Linear):
        def forward(self, x):
            self.count = getattr(self, "count", 0) + 1
            return super().forward(x) * self.count

    twice = lambda self, x: self.a(x) + self.a(x)  # noqa: E731
    hooked = Apply(twice, a=nn.Linear(3, 3))
    hooked.a.register_forward_hook(lambda *_: None)
    assert ONCE.explain(traced(hooked)).empty
    model = Apply(twice, a=Counts(3, 3))
    assert ONCE.explain(traced_whole(model, nn.Module)).empty


def test_a_weight_that_the_graph_writes_keeps_calls_of_its_module_apart():
    def function(self, x):
        before = self.a(x)
        self.a.weight.detach().mul_(2)
        return before + self.a(x)

    assert why_not(Apply(function, a=nn.Linear(3, 3))) == "state-written"


@pytest.mark.parametrize(
    "join",
    [
        lambda x: operator.add(x.chunk(3, -1), (x * 2,)),
        lambda x: operator.add((x * 2, x[0], x[1]), x.unbind(0)),
        lambda x: x.split(1) * 2,
        lambda x: (x.split(1) + x.split(1))[:2],
        lambda x: x.split(1) + (x.split(1) + x.unbind(0))[1:],
    ],
)
def test_a_sum_of_sequences_holds_the_tensors_that_they_hold(join):
    def function(self, x):
        first = x.sum()
        part = join(x)[-1]
        part.mul_(2)
        join(x)[0].add_(1)
        return first, x.sum()

    assert "written-in-between" in why_not(Apply(function), torch.randn(2, 3))


class Twice(torch.nn.Module):
    def forward(self, x):
        views = x.relu().view(-1), x.relu().view(-1)
        return {"a": x.sin() + x.sin(), "b": views, "c": x.cos(), "d": x.cos()}


def test_of_an_exported_graph_only_what_is_returned_is_said_to_be():
    exported = torch.export.export(Twice(), (torch.randn(2, 3),)).module()
    explained = EliminateCommonSubexpressions().explain(exported)
    assert explained.matched["sin_1"]
    assert explained.code["cos_1"] == "both-returned"
    assert explained.code["relu_1"] == "both-aliased"
