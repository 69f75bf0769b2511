"""Compiled models are compared as they are called: a wrong backend is seen, wherever it is named."""

import copy

import pytest
import torch
from torch import nn

import fxlab

INPUTS = torch.linspace(-2, 2, 12).reshape(3, 4)


def scaled(graph_module, inputs):
    """A backend whose code returns 3% too much."""
    return lambda *values: tuple(value * 1.03 for value in graph_module(*values))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


class Calls(Block):
    """Calls a compiled function inside."""

    def __init__(self, backend):
        super().__init__()
        self.inner = torch.compile(torch.tanh, backend=backend)

    def forward(self, x):
        return self.inner(self.layer(x))


def itself(backend):
    return torch.compile(Block(), backend=backend)


def in_place(backend):
    model = Block()
    model.compile(backend=backend)
    return model


def decorated(backend):
    class Decorated(Block):
        @torch.compile(backend=backend)
        def forward(self, x):
            return super().forward(x)

    return Decorated()


FORMS = itself, in_place, decorated, Calls
ASKED = {
    "compare": lambda model, other: fxlab.compare(model, other, INPUTS),
    "compare with gradients": lambda model, other: fxlab.compare(model, other, INPUTS, gradients=True),
    "the other way round": lambda model, other: fxlab.compare(other, model, INPUTS),
    "verdict": lambda model, other: fxlab.verdict(model, other, INPUTS),
    "verdict with gradients": lambda model, other: fxlab.verdict(model, other, INPUTS, gradients=True),
    "evaluate": lambda model, other: fxlab.evaluate(model, other, [INPUTS]),
}


@pytest.fixture(autouse=True)
def compiled_anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.each_value
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_backend_is_seen_and_a_right_one_agrees(form, asked):
    right = ASKED[asked](Block(), form("eager"))
    assert right.agrees
    torch._dynamo.reset()
    wrong = ASKED[asked](Block(), form(scaled))
    assert not wrong.agrees
    assert "computes the same" not in str(wrong)


def test_two_compiled_models_are_told_apart_by_more_than_rounding():
    model = Block()
    same = torch.compile(copy.deepcopy(model), backend="eager")
    assert fxlab.verdict(torch.compile(model, backend="eager"), same, INPUTS)
    torch._dynamo.reset()
    other = torch.compile(copy.deepcopy(model), backend=scaled)
    assert fxlab.verdict(torch.compile(model, backend="eager"), other, INPUTS).different


def test_a_compiled_function_is_compared_as_it_is_called():
    layer = nn.Linear(4, 2)

    def function(x):
        return layer(x).sin()

    assert not fxlab.compare(function, torch.compile(function, backend=scaled), INPUTS)
    torch._dynamo.reset()
    assert fxlab.compare(function, torch.compile(function, backend="eager"), INPUTS, gradients=True)


def test_nodes_of_compiled_code_are_not_compared_and_its_outputs_are():
    model, wrong = Block(), in_place(scaled)
    with pytest.raises(ValueError, match="candidate: it runs code that"):
        fxlab.compare_nodes(model, wrong, INPUTS)
    assert fxlab.first_divergence(model, wrong, INPUTS).node == "output"
    with pytest.raises(AssertionError, match="the candidate runs code that"):
        fxlab.assert_same(model, wrong, INPUTS)


def test_buffers_that_compiled_code_writes_are_put_back():
    norm = nn.BatchNorm1d(4)
    compiled = torch.compile(copy.deepcopy(norm), backend="eager")
    assert fxlab.verdict(norm, compiled, INPUTS)
    assert int(compiled._orig_mod.num_batches_tracked) == 0
