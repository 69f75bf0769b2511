"""Numbers, flags and lists among the inputs: held, and never the default of the graph."""

import copy
import math
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fxlab import Session, TraceError, from_callable, symbolic_trace
from fxlab.values.tensors import same_bits

X = torch.linspace(-2, 3, 6).reshape(2, 3)
CONSTANTS = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 2, 0.0, -0.0, 1.0, 2.0, math.inf, math.nan, "two"]),
    st.floats(-4, 4),
)


def told_apart(x, value):
    """Compute something else for each two values that Python can tell apart."""
    if not isinstance(value, bool | int | float):
        return x if value is None else -x
    shift = 5 * isinstance(value, bool) + 9 * isinstance(value, float) + 7 * (math.copysign(1, value) < 0)
    return torch.copysign(x * value, torch.tensor(float(value))) + shift


def module_with(default):
    class Module(nn.Module):
        def forward(self, x, value=default):
            return told_apart(x, value)

    return Module()


@settings(max_examples=12)
@given(CONSTANTS, CONSTANTS, CONSTANTS)
def test_a_graph_computes_what_the_model_does_or_refuses_whatever_is_left_out(default, held, other):
    model = module_with(default)
    traced = symbolic_trace(model, {"x": X, "value": held}, check=False)
    assert same_bits(traced(X, value=held), model(X, value=held))
    for arguments in ({}, {"value": other}, {"value": default}):
        try:
            actual = traced(X, **arguments)
        except AssertionError as error:
            assert str(error).startswith("traced for value = ")  # noqa: PT017
        else:
            assert same_bits(actual, model(X, **arguments))


def test_keyword_only_and_other_keywords_keep_the_model_s_defaults():
    class Module(nn.Module):
        def forward(self, x, *, scale=None, **others):
            return told_apart(x, scale) + others["shift"]

    traced = symbolic_trace(Module(), {"x": X, "scale": 2.0, "shift": 1})
    assert same_bits(traced(x=X, scale=2.0, shift=1), told_apart(X, 2.0) + 1)
    with pytest.raises(AssertionError, match="traced for scale = 2"):
        traced(x=X, shift=1)
    with pytest.raises(AssertionError, match="traced for shift = 1 only"):
        traced(x=X, scale=2.0, shift=1.0)


@pytest.mark.parametrize(
    ("other", "words"), [({"b": X, "a": X}, "x with the keys 'a', 'b' only"), ([X, X], "x as a dict only")]
)
def test_the_order_of_a_mapping_is_held(other, words):
    class Module(nn.Module):
        def forward(self, x):
            return torch.cat(list(x.values()))

    traced = symbolic_trace(Module(), ({"a": X, "b": X},))
    with pytest.raises(AssertionError, match=f"traced for {words}"):
        traced(other)


class JoinsKeywords(nn.Module):
    def forward(self, x, **others):
        return torch.cat([x, *others.values()])


def test_the_order_of_other_keywords_is_held():
    given = {"x": X, "a": X + 1, "b": X + 2}
    traced = symbolic_trace(JoinsKeywords(), given)
    swapped = dict(reversed(given.items()))
    for graph_module in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert same_bits(graph_module(a=given["a"], b=given["b"], x=X), JoinsKeywords()(**given))
        with pytest.raises(AssertionError, match="traced for the keywords a, b in this order only"):
            graph_module(**swapped)


class OfIdentity(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def forward(self, x, y):
        return x * 2 if x is y else self.other(x, y)


def test_a_decision_on_whether_two_inputs_are_one_is_refused():
    with pytest.raises(TraceError, match=r"y being the tensor of another input: .* differs"):
        symbolic_trace(OfIdentity(lambda x, y: x * 3 + y), (X, X))


def test_a_verdict_knows_of_two_inputs_that_are_one():
    class Writes(nn.Module):
        def forward(self, x, y):
            x.add_(1)
            return y * 2

    def reads_before(graph_module):
        *_, product, _ = graph_module.graph.nodes
        next(iter(graph_module.graph.find_nodes(op="placeholder", sort=False))).append(product)
        graph_module.graph.find_nodes(op="placeholder")[-1].append(product)

    session = Session(
        symbolic_trace(Writes(), (X, X + 1), check=False), (X, X), passes=[from_callable(reads_before)]
    )
    session.apply("reads-before")
    assert not session.verdict().agrees
    assert session.verdict().reason.startswith("output: a different function")


def test_counts_among_the_inputs_are_held():
    class Counts(nn.Module):
        def forward(self, x, counts):
            return x * counts["a"] + counts["b"]

    traced = symbolic_trace(Counts(), (X, Counter("aab")))
    assert torch.equal(traced(X, Counter("aab")), X * 2 + 1)
    with pytest.raises(AssertionError, match=r"traced for counts\['a'\] = 2 only"):
        traced(X, Counter("aaab"))
