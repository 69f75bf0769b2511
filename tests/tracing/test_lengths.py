"""``len`` of a tensor, and inputs of which there are none."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab.tracing import symbolic_trace


class Counts(nn.Module):
    def forward(self, x):
        return x.reshape(len(x), -1) * len(x) + torch.arange(len(x[0])).sum() + len([1, 2]) + len("abc")


class Loops(nn.Module):
    def forward(self, x):
        return sum(x[i] for i in range(len(x)))


def test_the_length_of_a_tensor_is_followed():
    traced = symbolic_trace(Counts(), (torch.randn(3, 4),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, Counts(), (torch.randn(5, 6),))


def test_a_loop_over_a_length_is_as_long_as_it_was_and_says_so():
    with pytest.warns(UserWarning, match="fixed at 3"):
        traced = symbolic_trace(Loops(), (torch.randn(3, 4),))
    assert_agree(traced, Loops(), (torch.randn(3, 7),))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(4, 4))


def test_len_is_python_s_own_again():
    symbolic_trace(Counts(), (torch.randn(3, 4),))
    assert "len" not in globals()


def test_inputs_without_any_element_keep_the_others_dynamic():
    class Joins(nn.Module):
        def forward(self, x, y):
            return torch.cat((x, y), dim=1) @ x.new_ones(4, 2)

    traced = symbolic_trace(Joins(), (torch.randn(3, 4), torch.randn(3, 0)))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, Joins(), (torch.randn(5, 4), torch.randn(5, 0)))
    with pytest.raises(AssertionError, match=r"y\.shape\[1\] = 0"):
        traced(torch.randn(3, 2), torch.randn(3, 2))
