"""Sparse outputs are compared in all of their elements, and in which of them they store."""

import pytest
import torch
from planted import Of

import fxlab

X = torch.linspace(-1, 2, 12).reshape(3, 4)


LAYOUTS = {"coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr}
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


def judged(function, other):
    models = Of(function), Of(other)
    table = fxlab.compare_outputs(*models, X)
    return fxlab.verdict(*models, X), table.iloc[0]


@pytest.mark.parametrize("stored", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    ("other", "status", "words"),
    [
        (lambda x: x, "same bits", "every bit"),
        (lambda x: x * 3.3 / 3.3, "within the model's own rounding", "its error is"),
        (lambda x: x * 1.01, "different", "a different function"),
        (lambda x: x.relu(), "different", "they store 12 and 8 elements"),
        (lambda x: x.double(), "different", "the dtypes differ"),
        (lambda x: x.long(), "different", "the dtypes differ"),
    ],
)
def test_a_sparse_output_is_judged_by_its_elements(stored, other, status, words):
    found, row = judged(lambda x: stored(x), lambda x: stored(other(x)))
    assert found.status == status
    assert words in found.reason
    assert row.same_bits == (status == "same bits")


@pytest.mark.parametrize("stored", LAYOUTS.values(), ids=LAYOUTS)
def test_whole_numbers_in_a_sparse_output_are_compared_exactly(stored):
    found, row = judged(lambda x: stored((x * 0).long() + 7), lambda x: stored((x * 0).long() + 8))
    assert found.reason == "output: 12 of 12 int64 elements differ"
    assert row.mismatched == 12


def test_another_layout_is_another_output():
    found, row = judged(lambda x: x.to_sparse(), lambda x: x)
    assert found.reason == "output: the layouts differ: sparse_coo and strided"
    assert row.note == "the layouts differ: sparse_coo and strided"


def test_nested_outputs_are_refused_in_words():
    with pytest.raises(ValueError, match="reference: what it returns as output is a nested tensor"):
        judged(*[lambda x: torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)] * 2)
