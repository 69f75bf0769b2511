"""Bits of tensors."""

import numpy as np
import pytest
import torch

from fxlab.values.plain_parts import plain_parts
from fxlab.values.row_digests import row_digests
from fxlab.values.tensors import bits_of, same_bits, tensors_by_path


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(10.0)[::5][:1],
        torch.arange(12.0).reshape(3, 4).t(),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.zeros(0, 3),
        torch.ones(1).expand(4),
    ],
    ids=["one-strided", "transposed", "number", "conjugate", "empty", "expanded"],
)
def test_a_tensor_has_the_bits_of_its_copy_however_it_lies_in_memory(tensor):
    copy = tensor.resolve_conj().clone(memory_format=torch.contiguous_format)
    assert same_bits(tensor, copy)
    assert bits_of(tensor).shape == (tensor.numel() * tensor.element_size(),)


def test_nan_is_itself_and_zero_is_not_minus_zero():
    assert same_bits(torch.tensor(float("nan")), torch.tensor(float("nan")))
    assert not same_bits(torch.tensor(0.0), torch.tensor(-0.0))


def quantized(values, scale=0.1):
    return torch.quantize_per_tensor(torch.tensor(values), scale, 0, torch.qint8)


def quantized_by_row(values, scales=(0.1, 0.2)):
    zeros = torch.tensor([0, 0])
    return torch.quantize_per_channel(
        torch.tensor([values, values]), torch.tensor(scales), zeros, 0, torch.qint8
    )


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:Sparse")
@pytest.mark.parametrize(
    "make",
    [
        quantized,
        quantized_by_row,
        lambda values: torch.tensor([values]).to_sparse(),
        lambda values: torch.tensor([values]).to_sparse_csr(),
        lambda values: torch.tensor([values]).to_sparse_csc(),
        lambda values: torch.tensor([values]).to_mkldnn(),
    ],
    ids=["quantized", "quantized by row", "sparse", "csr", "csc", "mkldnn"],
)
def test_tensors_that_are_stored_otherwise_have_bits_too(make):
    tensor = make([0.5, 0.0, 0.7])
    assert same_bits(tensor, make([0.5, 0.0, 0.7]))
    assert not same_bits(tensor, make([0.5, 0.0, 0.9]))
    assert not same_bits(tensor, make([0.5, 0.7, 0.0]))


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:Sparse")
def test_what_is_stored_differently_is_not_the_same():
    assert not same_bits(quantized([0.2]), quantized([0.4], scale=0.2))  # the same integers
    assert not same_bits(quantized_by_row([0.2]), quantized_by_row([0.2], scales=(0.1, 0.1)))
    assert not same_bits(torch.eye(2), torch.eye(2).to_sparse())


def test_plain_parts_of_an_output_have_classes_and_values():
    found = plain_parts({"text": "a", "state": torch.nn.Parameter(torch.ones(1))})
    parts = {path: (part.cls.__name__, part.value) for path, part in found.items()}
    assert parts == {"": ("dict", None), "text": ("str", "a"), "state": ("Tensor", None)}


def test_rows_are_equal_if_their_elements_and_dtypes_are():
    matrix = torch.arange(6.0).reshape(2, 3)
    assert row_digests(matrix, 1) == row_digests(matrix.T.contiguous(), 0)
    assert row_digests(matrix)[0] not in row_digests(matrix.double())


def test_arrays_of_numbers_count_as_tensors_and_others_do_not():
    output = {"a": np.ones(2), "b": np.float32(2), "c": np.array(["x"])}
    assert {path: each.tolist() for path, each in tensors_by_path(output).items()} == {
        "a": [1.0, 1.0],
        "b": 2.0,
    }
