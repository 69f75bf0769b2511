"""A graph checks what torch itself decided on sizes, where it would compute something else without."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab.tracing import symbolic_trace


class DownToOne(nn.Module):
    """Comes down to a single place, of which torch makes a plain number."""

    def __init__(self):
        super().__init__()
        self.down, self.mix = nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        y = self.down(x)
        y = self.mix(y.flatten(2).reshape(y.shape) * 2)
        batch, _, height, width = y.shape
        return (y.flatten(2) * 2).reshape(batch, -1, height, width).amax(1)


class Broadcast(nn.Module):
    def forward(self, x, y):
        z = x + y
        return z.reshape(z.shape[0], -1)


class Elementwise(nn.Module):
    def forward(self, x, y):
        return (x + y).flatten(1)


def test_a_size_that_came_down_to_one_is_checked():
    model = DownToOne().eval()
    traced = symbolic_trace(model, torch.randn(2, 3, 4, 4))
    assert_agree(traced, model, (torch.randn(3, 3, 3, 4),))
    for shape in ((2, 3, 8, 8), (2, 3, 4, 8), (2, 3, 5, 4)):
        with pytest.raises(AssertionError, match="traced for"):
            traced(torch.randn(shape))


@pytest.mark.parametrize(("rows", "others"), [(1, 5), (5, 1)])
def test_inputs_that_agreed_in_a_size_are_not_broadcast_where_that_size_is_used(rows, others):
    model = Broadcast()
    traced = symbolic_trace(model, (torch.randn(2, 3), torch.randn(2, 3)))
    assert_agree(traced, model, (torch.randn(4, 3), torch.randn(4, 3)))
    x, y = torch.randn(rows, 3), torch.randn(others, 3)
    with pytest.raises(AssertionError, match=r"traced for Eq\(.\.shape\[0\], .\.shape\[0\]\) only"):
        traced(x, y)


def test_inputs_are_broadcast_where_that_changes_nothing_else():
    traced = symbolic_trace(Elementwise(), (torch.randn(2, 3, 4), torch.randn(2, 3, 4)))
    assert not traced.graph.find_nodes(op="call_function", target=torch._assert)
    assert_agree(traced, Elementwise(), (torch.randn(1, 3, 4), torch.randn(5, 3, 4)))


class TakesSmallerOnes(nn.Module):
    """Has a limited number of positions; how many are used is a plain number."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(8, 4))

    def forward(self, x):
        return (x + self.positions[: int(x.shape[1])]).flatten(1)[:, : 4 * int(x.shape[1])].amax(1)


def test_a_size_that_only_smaller_ones_are_taken_for_is_checked():
    model = TakesSmallerOnes()
    with pytest.warns(UserWarning, match="holds for less"):
        traced = symbolic_trace(model, torch.randn(2, 8, 4))
    assert_agree(traced, model, (torch.randn(3, 8, 4),))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(2, 4, 4))
