"""Which values of a transformed module are new, and what rounding them does."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import scaled, traced, transformed
from torch import fx, nn

from fxlab import FuseBiasInLinear, MergeLinears
from fxlab.validation.verdicts.new_values import NewValues, moved

HALVES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("pass_", [MergeLinears(), FuseBiasInLinear()], ids=lambda pass_: pass_.name)
def test_values_that_only_move_are_not_new(pass_):
    graph, _ = traced("bert", torch.bfloat16)
    result = transformed(graph, pass_)
    assert pass_.get_transformed_nodes(result)
    assert len(NewValues(graph, result)) == 0


def test_changed_rows_are_new_and_their_neighbours_not():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(5, 7)))
    assert len(NewValues(graph, scaled(graph, "0", 1.01, slice(2, 4)))) == 10


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


def test_only_new_values_are_rounded_anew():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(5, 7)))
    wrong = scaled(graph, "0", 1.01, slice(2, 4))
    new = NewValues(graph, wrong)
    weight = wrong.get_submodule("0").weight
    result = new.rounded_anew(weight, torch.Generator().manual_seed(0))
    changed = (result != weight).any(1)
    assert changed.tolist() == [False, False, True, True, False, False, False]


@pytest.mark.slow
@given(
    st.lists(st.floats(width=16, allow_subnormal=False), min_size=1, max_size=20),
    st.sampled_from(HALVES),
    st.integers(0, 1000),
)
@settings(max_examples=50)
def test_a_moved_number_rounds_back_to_what_it_was(values, dtype, seed):
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    back = moved(tensor, torch.Generator().manual_seed(seed))
    significand, exponent = tensor.double().abs().frexp()
    unit = torch.ldexp(torch.full_like(back, torch.finfo(dtype).eps / 2), exponent)
    units = (back - tensor.double()).abs() / unit
    powers = significand == 0.5  # below a power of two, numbers are twice as dense
    ties = (units - 0.5).abs() < 1e-3  # torch rounds to float32 first
    agrees = (back.to(dtype) == tensor) | tensor.isnan() & back.isnan() | (powers | ties) & (units <= 0.5)
    assert agrees.all()


@pytest.mark.parametrize("dtype", [*HALVES, torch.float64])
def test_moves_have_the_variance_of_rounding(dtype):
    ones = torch.ones(200_000, dtype=dtype) * 1.5
    moves = moved(ones, torch.Generator().manual_seed(0)) - ones
    assert float(moves.std()) == pytest.approx(torch.finfo(dtype).eps / math.sqrt(12), rel=0.02)
    assert abs(float(moves.mean())) < torch.finfo(dtype).eps / 100


def test_zeros_and_what_is_not_finite_stay():
    values = torch.tensor([0.0, -0.0, math.inf, -math.inf])
    assert torch.equal(moved(values, torch.Generator()), values.double())


def test_float64_is_moved_as_far_as_rounding_moves_other_dtypes():
    numbers = torch.linspace(1, 2, 2**18, dtype=torch.float64)[:-1]
    steps = (moved(numbers, torch.Generator().manual_seed(0)) - numbers) / torch.finfo(torch.float64).eps
    assert set(steps.tolist()) == {-1, 0, 1}
    # The variance of a uniform error of up to half a unit; half a percent is one standard error.
    assert abs(float(steps.square().mean()) * 12 - 1) < 0.02
