"""Which values of a transformed module are new, and what rounding them does."""

import math

import pytest
import torch
from torch import fx, nn

from fxlab.validation.verdicts.new_values import NewValues, moved

HALVES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize(
    ("known", "given", "new"),
    [
        (b"..ABAB", b"ABAB", 0),
        (b".ABABA", b"ABAB", 2),  # between elements alone
        (b".ABAB.ABAB", b"ABAB", 0),
        (b"AB..", b".AB...AB..", 3),
    ],
)
def test_parts_of_vectors_are_known_at_whole_elements(known, given, new):
    graphs = [fx.symbolic_trace(nn.Sequential(nn.LayerNorm(1, bias=False))) for _ in range(2)]
    for graph, data in zip(graphs, (known, given), strict=True):
        held = torch.frombuffer(bytearray(data), dtype=torch.float16)
        graph.get_submodule("0").weight = nn.Parameter(held)
    assert len(NewValues(*graphs)) == new


@pytest.mark.parametrize("dtype", [*HALVES, torch.float64])
def test_moves_have_the_variance_of_rounding(dtype):
    ones = torch.ones(200_000, dtype=dtype) * 1.5
    moves = moved(ones, torch.Generator().manual_seed(0)) - ones
    assert float(moves.std()) == pytest.approx(torch.finfo(dtype).eps / math.sqrt(12), rel=0.02)
    assert abs(float(moves.mean())) < torch.finfo(dtype).eps / 100


def test_float64_is_moved_as_far_as_rounding_moves_other_dtypes():
    numbers = torch.linspace(1, 2, 2**18, dtype=torch.float64)[:-1]
    steps = (moved(numbers, torch.Generator().manual_seed(0)) - numbers) / torch.finfo(torch.float64).eps
    assert set(steps.tolist()) == {-1, 0, 1}
    # The variance of a uniform error of up to half a unit; half a percent is one standard error.
    assert abs(float(steps.square().mean()) * 12 - 1) < 0.02
