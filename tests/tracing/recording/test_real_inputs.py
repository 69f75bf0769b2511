"""A run on the real inputs: what does not follow from shapes is held, and other data is tried."""

import ctypes

import numpy as np
import pytest
import torch
from agreement import assert_agree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fxlab import TraceError, symbolic_trace
from fxlab.tracing.bound_inputs import Argument
from fxlab.tracing.report import REAL
from fxlab.tracing.verification.eager import other_data

pytestmark = pytest.mark.filterwarnings("ignore:The traced graph is specialised")
GIVEN = torch.tensor([2, 0, 1])


@torch.library.custom_op("fxlab_tests::first", mutates_args=())
def first(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(int(x[0]))


@torch.library.custom_op("fxlab_tests::total", mutates_args=())
def total(x: torch.Tensor) -> int:
    return int(x.sum())


@torch.library.custom_op("fxlab_tests::both", mutates_args=())
def both(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x.clone(), int(x.sum())


@torch.library.custom_op("fxlab_tests::several", mutates_args=())
def several(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone() for _ in range(int(x[0]))]


def packed(lengths):
    steps = torch.arange(12.0).reshape(3, 4, 1)
    rows = nn.utils.rnn.pack_padded_sequence(steps, lengths + 1, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(rows, batch_first=True)[0]


# Each gives a number that the model's Python sees: a size, a count or something that torch has told.
NUMBERS = {
    "classes": lambda x: functional.one_hot(x).shape[1],
    "the longest": lambda x: packed(x).shape[1],
    "a range": lambda x: torch.arange(x.sum()).numel(),
    "a range, by name": lambda x: len(torch.arange(0, end=x[0])),
    "parts": lambda x: torch.arange(9).tensor_split(x[:1])[0].numel(),
    "numbers that are not zero": lambda x: x.float().to_sparse()._nnz(),
    "bins": lambda x: torch.bincount(x).numel(),
    "those chosen": lambda x: x[x > 0].shape[0],
    "places": lambda x: torch.nonzero(x, as_tuple=True)[0].numel(),
    "repeated": lambda x: torch.repeat_interleave(x, x).numel(),
    "different ones": lambda x: torch.unique(x, return_counts=True)[1].numel(),
    "written elsewhere": lambda x: torch.nonzero(x, out=torch.empty(0, 1, dtype=torch.int64)).shape[0],
    "values of a sparse tensor": lambda x: x.float().to_sparse().coalesce().values().numel(),
    "columns of a sparse tensor": lambda x: x[None].float().to_sparse_csr().col_indices().numel(),
    "those of an operator of one's own": lambda x: first(x).numel(),
    "a number of an operator of one's own": total,
    "a number beside a tensor": lambda x: both(x)[1],
    "tensors of an operator of one's own": lambda x: len(several(x)),
    "a list": lambda x: x.tolist()[0],
}


class Counts(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        torch.zeros(1).numpy()  # leaves torch
        return x * self.number(x)


@pytest.mark.often(8)
@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_depend_on_data_are_held(number):
    model = Counts(number)
    traced = symbolic_trace(model, GIVEN)
    assert traced.meta["trace"].rung == REAL
    assert_agree(traced, model, GIVEN)
    refused = 0
    for other in ([2, 1, 0], [1, 0, 1], [3, 3, 3], [1, 2, 0], [0, 0, 4], [5, 1, 1]):
        try:
            assert_agree(traced, model, torch.tensor(other))
        except AssertionError as error:
            assert str(error).startswith("traced for")  # noqa: PT017
            refused += 1
    assert refused


def test_a_number_that_is_none_is_held():
    model = Counts(lambda x: 1 if np.isnan(x.float().log().sum().item() * 0) else 2)
    traced = symbolic_trace(model, GIVEN)
    assert_agree(traced, model, GIVEN)
    with pytest.raises(AssertionError, match="traced for item giving"):
        traced(GIVEN + 1)


def test_a_graph_that_is_wrong_on_other_data_is_not_handed_out():
    def memory_of(x):
        return ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))

    class Reads(nn.Module):
        def forward(self, x):
            return x * float(memory_of(x)[0])

    with pytest.raises(TraceError, match="other data") as raised:
        symbolic_trace(Reads(), torch.tensor([2.0, 3.0]))
    assert raised.value.code == "other-results"


@settings(max_examples=40)
@given(
    st.sampled_from(
        [torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool, torch.float64]
    ),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.booleans(),
)
def test_other_data_lies_in_the_range_of_what_was_given_and_differs(dtype, numbers, is_strided):
    value = torch.tensor(numbers).to(dtype)
    value = value.repeat(2, 1).t() if is_strided else value
    variants = list(other_data((Argument("x", value, True), Argument("n", 3, True))))
    assert variants
    for values in variants:
        other = values["x"]
        assert values["n"] == 3
        assert (other.shape, other.dtype, other.stride()) == (value.shape, value.dtype, value.stride())
    other, (low, high) = variants[0]["x"], (min(numbers), max(numbers))
    if dtype.is_complex:
        other, value = other.real, value.real
    if low == high and dtype not in (torch.int64, torch.uint8, torch.bool):
        assert not torch.equal(other, value)
    elif dtype is not torch.bool:
        assert int(other.min()) >= max(low - 1, 0)
        assert float(other.max()) <= high


def test_names_and_numbers_are_changed_together_and_each_alone():
    given = {"names": torch.arange(20), "x": torch.arange(20) / 20}
    variants = other_data(tuple(Argument(name, value, True) for name, value in given.items()))
    changed = [{name for name in given if not torch.equal(values[name], given[name])} for values in variants]
    assert changed == [{"names", "x"}, {"x"}, {"names"}]


def sparse(*values):
    places = torch.arange(len(values)).repeat(2, 1)
    return torch.sparse_coo_tensor(places, torch.tensor(values), (4, 4), check_invariants=True)


class OfSparse(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, sparse, x):
        return x * self.number(sparse)


@pytest.mark.each_value
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize(
    "number",
    [
        lambda sparse: sparse._nnz(),
        lambda sparse: sparse.coalesce().values().numel(),
        lambda sparse: sparse.coalesce().indices().shape[1],
        lambda sparse: len(sparse.to_dense().to_sparse_csr().col_indices()),
    ],
)
def test_how_many_elements_of_a_sparse_tensor_are_stored_is_held(number, count, check):
    model, x = OfSparse(number), torch.ones(2)
    traced = symbolic_trace(model, (sparse(*[1.0] * count), x), check=check)
    assert torch.equal(traced(sparse(*[2.0] * count), x), x * count)
    with pytest.raises(AssertionError, match="traced for"):
        traced(sparse(1.0, 2.0, 3.0), x)


def test_whether_a_sparse_tensor_is_coalesced_is_held():
    model, x = OfSparse(lambda sparse: 2 if sparse.is_coalesced() else 3), torch.ones(2)
    traced = symbolic_trace(model, (sparse(1.0, 1.0), x))
    assert torch.equal(traced(sparse(2.0, 2.0), x), 3 * x)
    with pytest.raises(AssertionError, match="is_coalesced is read"):
        traced(sparse(2.0, 2.0).coalesce(), x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_in_words():
    class Nested(nn.Module):
        def forward(self, x):
            return torch.nested.nested_tensor([row[row > 0] for row in x]).to_padded_tensor(0.0)

    with pytest.raises(TraceError, match="makes a nested tensor, which cannot be recorded"):
        symbolic_trace(Nested(), torch.randn(2, 3), dynamic=False)
