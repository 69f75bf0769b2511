"""Python's arithmetic on sizes, followed in the graph."""

import math

import numpy as np
import pytest
import torch
from agreement import assert_agree, outcome
from torch import nn

from fxlab.tracing import symbolic_trace

ARITHMETIC = {
    "floor": lambda n: math.floor(n / 3),
    "ceil": lambda n: math.ceil(n / 3),
    "round": lambda n: round(n / 3),
    "round half": lambda n: round(n / 2),
    "max": lambda n: max(n, 4),
    "modulo": lambda n: n % 4,
    "floor division": lambda n: (n + 2) // 3,
    "power": lambda n: n**2,
    "difference": lambda n: n - 2,
}
FIXED_BY_PYTHON = {
    "int of a quotient": lambda n: int(n / 3),
    "square root": lambda n: int(n**0.5),
    "math.sqrt": lambda n: int(math.sqrt(n)),
    "a branch": lambda n: min(n // 2, 7),
    "int of a product": lambda n: int(float(n) * 1.5),
}
"""``int`` must return an ``int``, so there Python itself asks which one it is."""


class Sized(nn.Module):
    def __init__(self, arithmetic):
        super().__init__()
        self.arithmetic = arithmetic

    def forward(self, x):
        size = self.arithmetic(x.shape[1])
        return x.new_zeros(2, size) + 1, x * size


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_on_sizes_is_followed(name):
    model = Sized(ARITHMETIC[name])
    traced = symbolic_trace(model, (torch.randn(3, 12),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    for length in (12, 5, 9, 17):
        assert_agree(traced, model, (torch.randn(2, length),))


@pytest.mark.parametrize("name", FIXED_BY_PYTHON)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_arithmetic_that_fixes_a_size_is_right_or_refused(name):
    model = Sized(FIXED_BY_PYTHON[name])
    traced = symbolic_trace(model, (torch.randn(3, 12),))
    assert_agree(traced, model, (torch.randn(3, 12),))
    for length in (5, 11, 13, 17):
        with torch.no_grad():
            refused = outcome(traced, torch.randn(3, length))[1]
        assert refused is None or "x.shape[1]" in str(refused)
        if refused is None:
            assert_agree(traced, model, (torch.randn(2, length),))


@pytest.mark.parametrize("number", [np.float64(0.1), np.float32(0.1), np.int64(3), np.bool_(True)])
def test_numbers_of_numpy_are_plain_numbers_in_the_graph(number):
    class Scaled(nn.Module):
        def forward(self, x):
            return x * number

    traced = symbolic_trace(Scaled(), (torch.randn(2, 3),))
    assert "np." not in traced.code
    assert_agree(traced, Scaled(), (torch.randn(4, 3),))
