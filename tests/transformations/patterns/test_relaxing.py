"""Patterns that are relaxed at a place where they nearly match; each relaxed pass is applied and compared."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import fxlab
from fxlab.session.near_misses import near_miss
from fxlab.transformations.patterns.relaxing import Relaxed, relaxed

X = torch.randn(2, 4, 8)


def scaled(x):
    return torch.relu(x * 2)


def behind(x):
    return torch.relu(x) * 2


def attention(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-2, -1) + mask, -1) @ v


def fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)


def found(model, inputs, node, pattern, replacement, **more) -> tuple[fx.GraphModule, list[Relaxed]]:
    pass_ = fxlab.from_pattern(pattern, replacement, name="mine", **more)
    traced = fxlab.symbolic_trace(model, inputs)
    return traced, list(relaxed(pass_, traced, near_miss(pass_, traced, node)))


def rebuilt(one: Relaxed) -> fxlab.Transformation:
    """Run the Python text of a relaxed pass, as somebody does who has copied it."""
    namespace: dict[str, object] = {}
    exec(one.source, namespace)
    return namespace["relaxed"]


@pytest.mark.parametrize("replacement", [behind, lambda y: torch.relu(y) * 2])
def test_a_number_is_captured_in_the_pattern_and_its_replacement(replacement):
    traced, (one,) = found(
        lambda x: torch.relu(x * 3), (X,), "relu", scaled, replacement, preserves_computation=True
    )
    assert one.words == "Capture 2 as a number"
    for pass_ in (one.pass_, rebuilt(one)):
        changed = pass_(traced)
        assert [node.name for node in pass_.get_transformed_nodes(changed)] != []
        torch.testing.assert_close(changed(X), torch.relu(X * 3))
        traced = fxlab.symbolic_trace(lambda x: torch.relu(x * 3), (X,))


def test_a_number_that_the_pattern_captures_already_stays_one():
    def pattern(x, factor: float):
        return torch.relu((x * factor).abs().abs())

    def replacement(x, factor: float):
        return (x * factor).abs()

    traced, every = found(
        lambda x: torch.relu((x * 3).abs()), (X,), "relu", pattern, replacement, preserves_computation=True
    )
    assert every
    for one in every:
        assert "def pattern(x, factor: float):" in one.source
        for pass_ in (one.pass_, rebuilt(one)):
            assert pass_.get_transformed_nodes(pass_(copy.deepcopy(traced)))


def test_a_call_may_be_missing_if_the_replacement_does_without_it():
    def model(q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

    traced, (one,) = found(model, (X, X, X), "matmul_1", attention, fused, preserves_computation=True)
    assert one.words == "Let add be missing"
    changed = rebuilt(one)(traced)
    assert "scaled_dot_product_attention" in changed.code
    torch.testing.assert_close(changed(X, X, X), model(X, X, X))


def test_nothing_is_offered_where_the_relaxed_pass_would_compute_something_else():
    def other(x):
        return torch.tanh(F.gelu(x) + 1)

    def pattern(x):
        return torch.tanh(torch.relu(x) + 1)

    assert found(other, (X,), "tanh", pattern, pattern, preserves_computation=True)[1] == []
    assert found(other, (X,), "tanh", pattern, lambda x: x)[1] == []


def test_nothing_is_offered_for_conditions_and_other_users():
    def used_twice(x):
        y = x * 2
        return torch.relu(y) + y

    assert found(used_twice, (X,), "relu", scaled, behind, preserves_computation=True)[1] == []
    where = {"small": lambda match: True}
    third = lambda x: torch.relu(x * 3)  # noqa: E731
    assert found(third, (X,), "relu", scaled, behind, where=where, preserves_computation=True)[1] == []


def test_a_pass_without_a_promise_captures_numbers_that_its_replacement_has():
    third = lambda x: torch.relu(x * 3)  # noqa: E731
    (one,) = found(third, (X,), "relu", scaled, lambda x: torch.sigmoid(x) * 2)[1]
    assert "torch.sigmoid(x)" in one.source
    assert not one.pass_.preserves_computation
    assert found(third, (X,), "relu", scaled, torch.sigmoid)[1] == []
