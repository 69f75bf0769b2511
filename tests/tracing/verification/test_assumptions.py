"""A graph checks what torch itself decided on sizes, where it would compute something else without."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace
from fxlab.values.tensors import same_bits


class DownToOne(nn.Module):
    """Comes down to a single place, and is taken apart and put together there."""

    def __init__(self, unflattens):
        super().__init__()
        self.down, self.mix = nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.Conv2d(6, 6, 1)
        self.unflattens = unflattens

    def forward(self, x):
        y = self.down(x)
        flat = y.flatten(2)
        y = self.mix((flat.unflatten(2, y.shape[2:]) if self.unflattens else flat.reshape(y.shape)) * 2)
        batch, _, height, width = y.shape
        return (y.flatten(2) * 2).reshape(batch, -1, height, width).amax(1)


class Broadcast(nn.Module):
    def forward(self, x, y):
        z = x + y
        return z.reshape(z.shape[0], -1)


class Scaled(nn.Module):
    """Is broadcast to three columns, and then reads how many there were."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x * self.scale / x.shape[1]


class Elementwise(nn.Module):
    def forward(self, x, y):
        return (x + y).flatten(1)


def test_a_size_of_which_torch_makes_a_plain_one_is_checked():
    model = DownToOne(unflattens=True).eval()
    traced = symbolic_trace(model, torch.randn(2, 3, 4, 4))
    assert_agree(traced, model, (torch.randn(3, 3, 3, 4),))
    for shape in ((2, 3, 8, 8), (2, 3, 4, 8)):
        with pytest.raises(AssertionError, match="traced for"):
            traced(torch.randn(shape))


@pytest.mark.parametrize(("rows", "others"), [(1, 5), (5, 1)])
def test_inputs_that_agreed_in_a_size_are_not_broadcast_where_that_size_is_used(rows, others):
    model = Broadcast()
    traced = symbolic_trace(model, (torch.randn(2, 3), torch.randn(2, 3)))
    assert_agree(traced, model, (torch.randn(4, 3), torch.randn(4, 3)))
    x, y = torch.randn(rows, 3), torch.randn(others, 3)
    with pytest.raises(AssertionError, match=r"traced for .\.shape\[0\] == .\.shape\[0\] only"):
        traced(x, y)


@pytest.mark.parametrize(("columns", "others"), [(3, 1), (1, 3)])
@pytest.mark.parametrize("check", [True, False])
def test_a_size_that_a_parameter_is_broadcast_to_is_checked(columns, others, check):
    model = Scaled()
    traced = symbolic_trace(model, torch.randn(2, columns), check=check)
    assert_agree(traced, model, (torch.randn(5, columns),))
    with pytest.raises(AssertionError, match=rf"traced for x.shape\[1\] = {columns} only"):
        traced(torch.randn(2, others))


SQUEEZES = {
    "all": lambda x: x.squeeze(),
    "one": lambda x: x.squeeze(1),
    "several": lambda x: x.squeeze((0, 1)),
    "in place": lambda x: (x * 1).squeeze_(1),
    "a function": lambda x: torch.squeeze(x, 1),
    "half": lambda x: x[:, : x.shape[1] // 2].squeeze(1),
    "read": lambda x: x.squeeze(1) * x.squeeze(1).dim(),
    "reduced": lambda x: x.squeeze(1).sum(0),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", SQUEEZES)
def test_a_squeezed_size_that_becomes_one_is_right_or_refused(name, check):
    class Squeezes(nn.Module):
        def forward(self, x):
            return SQUEEZES[name](x)

    traced = symbolic_trace(Squeezes(), (torch.randn(3, 6, 4),), check=check)
    for shape in [(3, 1, 4), (3, 2, 4), (1, 6, 4), (1, 1, 4), (5, 7, 4)]:
        x = torch.randn(shape)
        expected = Squeezes()(x)
        try:
            actual = traced(x)
        except AssertionError as refusal:
            assert str(refusal).startswith("traced for")  # noqa: PT017
            continue
        assert same_bits(actual, expected)


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_trace_that_is_not_compared_says_so(device):
    x = torch.randn(3, 4, device=device)
    traced = symbolic_trace(nn.Linear(4, 2, device=device), (x,), check=device == "meta")
    (found,) = traced.meta["trace"].of_kind("check")
    assert found.code == "not-compared"
