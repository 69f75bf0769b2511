"""Memory that tensors have in common."""

import time

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fxlab.values.memory import overlapping

BASES = torch.zeros(24), torch.zeros(48, dtype=torch.int16), torch.zeros(12, dtype=torch.float64)


def addresses(tensor):
    """Return the address of every byte of every element."""
    places = [0]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = [place + index * stride for place in places for index in range(size)]
    size = tensor.element_size()
    return {tensor.data_ptr() + place * size + byte for place in places for byte in range(size)}


@st.composite
def tensors(draw):
    base = draw(st.sampled_from(BASES)).view(draw(st.sampled_from([torch.float32, torch.int16, torch.int8])))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    return base.as_strided(shape, [draw(st.integers(0, 3)) for _ in shape], draw(st.integers(0, 4)))


@given(st.lists(tensors(), max_size=4))
def test_two_tensors_overlap_where_they_have_a_byte_in_common(several):
    named = dict(enumerate(several))
    pairs = [(a, b) for a in named for b in named if a < b]
    lie = {name: addresses(tensor) if tensor.numel() else set() for name, tensor in named.items()}
    expected = [(a, b) for a, b in pairs if lie[a] & lie[b]]
    assert list(overlapping(named)) == expected


def test_memory_of_numpy_and_what_sparse_tensors_hold_is_seen():
    array = np.zeros(5, dtype=np.float32)
    assert list(overlapping({1: torch.from_numpy(array), 2: torch.from_numpy(array)[3:]})) == [(1, 2)]
    values = torch.ones(2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (3,), check_invariants=False)
    assert list(overlapping({"sparse": sparse, "values": values})) == [("sparse", "values")]


def test_tensors_without_memory_overlap_with_nothing():
    weight = torch.ones(3, device="meta")
    assert list(overlapping({"a": weight, "b": weight})) == []


def test_very_many_parts_of_one_tensor_are_told_apart_at_once():
    columns = dict(enumerate(torch.zeros(300, 2000).unbind(1)))
    begin = time.process_time()
    assert list(overlapping(columns)) == []
    assert time.process_time() - begin < 5  # each two of them looked at take minutes
    whole = columns[7]._base
    assert list(overlapping({"x": whole[:, 7]}, columns)) == [("x", 7)]
