"""Results that are made in one step are those that torch makes."""

import operator

import pytest
import torch
from agreement import assert_agree
from torch import nn
from torch.nn import functional as F

from fxlab import symbolic_trace
from fxlab.tracing.shapes.kernels import dense_results

CALLS = {
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 1.0),
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "silu": F.silu,
    "sigmoid": lambda x: x.sigmoid(),
    "layer norm": lambda x: F.layer_norm(x.flatten(1)[:, :6], (6,)),
    "flatten": lambda x: x.flatten(1),
    "flatten the front": lambda x: torch.flatten(x, 0, 1),
    "flatten nothing": lambda x: x.flatten(1, 1),
    "reshape": lambda x: x.reshape(x.shape[0], -1, 2, 2),
    "reshape to rows": lambda x: torch.reshape(x, (-1, x.shape[-1])),
    "reshape to one row": lambda x: torch.reshape(x, shape=(-1,)),
    "view as": lambda x: (x.contiguous() * 2).flatten(1).view_as(x),
    "view": lambda x: x.contiguous().view(x.shape[0], 2, -1, x.shape[-1]),
}


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.full((), 1.5))

    def forward(self, x):
        return self.function(x * self.scale)


@pytest.mark.often(12)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", CALLS)
def test_shapes_strides_and_dtypes_are_those_of_torch(name, layout):
    given = torch.randn(3, 6, 4).transpose(1, 2) if layout == "transposed" else torch.randn(3, 4, 6)
    model = Called(CALLS[name])
    expected = model(given)
    for dynamic in (False, True):
        traced = symbolic_trace(model, given, dynamic=dynamic)
        (output,) = traced.graph.find_nodes(op="output")
        made = output.args[0].meta["val"]
        sizes = [int(size) for size in (*made.shape, *made.stride())]
        assert sizes == [*expected.shape, *expected.stride()]
        assert made.dtype == expected.dtype
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, (torch.randn(5, 4, 6),))


def test_no_question_is_asked_about_sizes(monkeypatch):
    class Block(nn.Module):
        def forward(self, x):
            return F.layer_norm(F.silu(x.flatten(0, 1).reshape(x.shape)) + x, (8,))

    def conditions():
        graph = symbolic_trace(Block(), torch.randn(2, 5, 8)).graph
        (output,) = graph.find_nodes(op="output")
        return {str(guard.expr) for guard in output.args[0].meta["val"].fake_mode.shape_env.guards}

    asked = conditions()
    monkeypatch.setattr(dense_results, "DENSE_RESULTS", {})
    monkeypatch.setattr("fxlab.tracing.shapes.kernels.fake_kernels.DENSE_RESULTS", {})
    assert asked < conditions()


def test_activations_in_place_are_writes():
    class InPlace(nn.Module):
        def forward(self, x):
            y = x * 2
            rows = y[0]
            F.silu(y, inplace=True)
            F.relu_(rows)
            return y + rows

    traced = symbolic_trace(InPlace(), torch.randn(2, 5))
    assert_agree(traced, InPlace(), (torch.randn(4, 7),))


def test_parameters_written_in_place_are_an_error_as_in_torch():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            with torch.enable_grad():
                return x + F.relu(self.weight, inplace=True)

    with pytest.raises(Exception, match="leaf Variable that requires grad"):
        symbolic_trace(Wrong(), torch.randn(2, 4))


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_gradients_of_what_is_computed_can_be_asked_for():
    class Asked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = F.silu(F.layer_norm(self.linear(x), (4,)) + x).flatten(0, 1)
            return y * 2 if y.requires_grad and y.grad_fn is not None else y

    with torch.enable_grad():
        traced = symbolic_trace(Asked(), torch.randn(2, 3, 4), check=False)
    assert traced.graph.find_nodes(op="call_function", target=operator.mul)
