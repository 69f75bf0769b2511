"""Bits of tensors."""

import pytest
import torch

from fxlab.tensors import bits_of, same_bits


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
