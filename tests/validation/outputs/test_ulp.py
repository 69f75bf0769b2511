"""How many numbers of a dtype lie between two."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fxlab.validation.outputs.compare_outputs import max_ulp_distance

FLOATS = [torch.float16, torch.float32, torch.float64]


def distance(a, b, dtype=torch.float32):
    return max_ulp_distance(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=dtype))


@given(
    st.floats(allow_nan=False, allow_infinity=False, width=16), st.integers(1, 50), st.sampled_from(FLOATS)
)
def test_steps_are_counted_through_zero_and_all_magnitudes(value, steps, dtype):
    numbers = np.dtype(str(dtype).removeprefix("torch.")).type
    other = numbers(value)
    for _ in range(steps):
        other = np.nextafter(other, numbers(math.inf))
    if np.isfinite(other):
        assert distance(value, float(other), dtype) == steps


def test_empty_and_strided_tensors():
    assert max_ulp_distance(torch.zeros(0), torch.zeros(0)) == 0
    x = torch.randn(4, 6)
    assert max_ulp_distance(x.t()[::2], x.t()[::2].clone()) == 0
