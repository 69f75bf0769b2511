"""Statistics, histograms and slices against what torch says of the whole tensor."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fxlab.validation.tensor_values import statistics as module
from fxlab.validation.tensor_values.node_values import slice_of
from fxlab.validation.tensor_values.statistics import histogram_of, statistics_of

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
)
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0)


@st.composite
def tensors(draw, dtypes=(*FLOATS, *WHOLE)) -> torch.Tensor:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    numbers = st.integers(0, 1 if dtype is torch.bool else 100)
    if dtype in FLOATS:
        numbers = st.one_of(st.sampled_from(SPECIAL), st.floats(-100, 100, width=16))
    count = math.prod(shape)
    values = draw(st.lists(numbers, min_size=count, max_size=count))
    return torch.tensor(values, dtype=dtype).reshape(shape)


@settings(max_examples=150)
@given(tensor=tensors(), chunk=st.integers(1, 50))
def test_statistics_are_those_of_the_whole_tensor(tensor, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found, histogram = statistics_of(tensor), histogram_of(tensor)
    wide = tensor.to(torch.float64)
    finite = wide[wide.isfinite()]
    assert (found.shape, found.dtype) == (tuple(tensor.shape), tensor.dtype)
    assert (found.nan, found.inf) == (int(wide.isnan().sum()), int(wide.isposinf().sum()))
    assert found.negative_inf == int(wide.isneginf().sum())
    places = (~wide.isfinite()).nonzero().tolist()
    assert found.first_non_finite == (tuple(places[0]) if places else None)
    assert sum(histogram.counts) == finite.numel()
    if wide.numel():
        assert found.zeros == pytest.approx(float((wide == 0).sum()) / wide.numel())
    if not finite.numel():
        assert math.isnan(found.min)
        assert math.isnan(found.mean)
        assert histogram.edges == ()
        return
    assert (found.min, found.max) == (float(finite.min()), float(finite.max()))
    assert found.mean == pytest.approx(float(finite.mean()), abs=1e-9)
    assert found.std == pytest.approx(float(finite.std(correction=0)), abs=1e-6)
    assert histogram.edges[0] <= found.min
    assert histogram.edges[-1] >= found.max


def test_whole_numbers_have_a_bin_each_and_large_ones_stay_exact():
    assert histogram_of(torch.tensor([3, 3, 5])).counts == (2, 0, 1)
    assert statistics_of(torch.tensor([2**62 + 1])).max == 2**62 + 1


def test_a_saturated_dtype_uses_all_of_its_range():
    assert statistics_of(torch.tensor([65504.0], dtype=torch.float16)).range_used == 1
    assert statistics_of(torch.tensor([-128, 3], dtype=torch.int8)).range_used == 1


@pytest.mark.parametrize("tensor", [torch.empty(2, device="meta"), torch.eye(2).to_sparse()])
def test_a_tensor_without_readable_values_is_refused_in_words(tensor):
    with pytest.raises(ValueError, match=r"meta device|make it dense"):
        statistics_of(tensor)


@settings(max_examples=100)
@given(tensor=tensors(), most=st.integers(1, 4))
def test_cells_are_the_elements_of_largest_absolute_value(tensor, most):
    found = slice_of(tensor, most=most)
    matrix = tensor[(0,) * max(0, tensor.dim() - 2)] if 0 not in tensor.shape[:-2] else None
    if matrix is None:
        return
    matrix = matrix.to(torch.float64).reshape(found.shape)
    for row, line in enumerate(found.cells.tolist()):
        for column, cell in enumerate(line):
            block = matrix[row * found.row_block : (row + 1) * found.row_block]
            block = block[:, column * found.column_block : (column + 1) * found.column_block]
            if block.isnan().any():
                assert math.isnan(cell)
            else:
                assert abs(cell) == float(block.abs().max())
                assert bool((block == cell).any())


def test_axes_are_chosen_and_sliced():
    tensor = torch.arange(120).reshape(2, 3, 4, 5)
    found = slice_of(tensor, rows=3, columns=0, index={1: 2, -2: 1})
    assert found.cells.tolist() == tensor[:, 2, 1, :].T.tolist()
    assert (found.rows, found.columns, found.index) == (3, 0, (None, 2, 1, None))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": 1, "columns": 1}, "two dimensions"),
        ({"rows": 7}, "has 3 dimensions"),
        ({"index": {0: 9}}, "has 2 elements"),
        ({"rows": 1, "columns": 2, "index": {2: 0}}, "is shown"),
    ],
)
def test_a_slice_that_is_none_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        slice_of(torch.ones(2, 3, 4), **arguments)


def test_whole_numbers_have_a_bin_each_as_long_as_there_are_bins():
    assert histogram_of(torch.arange(module.BINS)).counts == (1,) * module.BINS
    assert len(histogram_of(torch.arange(module.BINS + 1)).counts) == module.BINS
