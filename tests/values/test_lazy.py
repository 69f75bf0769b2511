"""Tensors whose numbers are read for each operation anew."""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fxlab.values.lazy import LazyTensor, Source, as_parameter, deferred, is_lazy, numbers_of
from fxlab.values.tensors import bits_of, same_bits


@dataclass(frozen=True)
class Counted(Source):
    """Numbers that are made anew, and how often they were."""

    seed: int
    shape: tuple[int, ...]
    reads: list[int]

    def read(self):
        self.reads.append(self.seed)
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(self.seed))

    def text(self):
        return f"seed {self.seed}"

    def __hash__(self):
        return self.seed


def lazy(seed=0, shape=(4, 3), reads=None):
    return LazyTensor(Counted(seed, shape, [] if reads is None else reads), torch.empty(shape, device="meta"))


def real(seed=0, shape=(4, 3)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


OPERATIONS = [
    lambda a, b: a @ b.t(),
    lambda a, b: torch.cat([a, b], 1),
    lambda a, b: (a.double() * 0.1).to(torch.bfloat16),
    lambda a, b: a[1:, ::2] + b[:3, :2],
    lambda a, b: torch.stack([a, b]).movedim(0, 2).contiguous(),
    lambda a, b: a.clone() - b.detach(),
    lambda a, b: torch.where(a > b, a, b.new_zeros(())),
    lambda a, b: torch.linalg.qr(a)[1] + b[:3],
    lambda a, b: torch.split(a, [1, 3])[1] * b.unbind(1)[0][1:, None],
    lambda a, b: a.masked_fill(a.isnan(), 0).sum(0, keepdim=True).expand(4, 3),
    lambda a, b: a.nonzero(),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=range(len(OPERATIONS)))
@pytest.mark.parametrize("waits", [False, True])
def test_operations_give_the_bits_that_they_give_on_plain_tensors(operation, waits):
    expected = operation(real(0), real(1))
    if waits:
        with deferred():
            found = operation(lazy(0), lazy(1))
    else:
        found = operation(lazy(0), lazy(1))
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert torch.equal(numbers_of(found), expected)


def test_a_deferred_result_is_read_when_it_is_used_and_not_kept():
    reads = []
    with deferred():
        merged = torch.cat([lazy(0, reads=reads), lazy(1, reads=reads)])
    assert is_lazy(merged)
    assert not reads
    for _ in range(2):
        assert (merged + 1).shape == (8, 3)
    assert reads == [0, 1, 0, 1]


def test_values_that_code_decides_on_are_known_while_operations_wait():
    with deferred():
        assert bool((lazy() * 2).isfinite().all())
        assert (lazy(shape=(1,)) * 2).item() == real(shape=(1,)).item() * 2


def test_what_was_computed_before_a_write_does_not_see_it_and_views_do():
    one, plain = lazy(), real()
    with deferred():
        doubled, view = one * 2, one[1]
        twin = copy.deepcopy(one)
    one[1, :2] *= 3
    view.add_(1)
    expected = plain.clone()
    expected[1, :2] *= 3
    expected[1] += 1
    assert torch.equal(numbers_of(one), expected)
    assert torch.equal(numbers_of(view), expected[1])
    assert torch.equal(numbers_of(doubled), plain * 2)
    assert torch.equal(numbers_of(twin), plain)
    with pytest.raises(NotImplementedError, match="another shape in place"):
        one.t_()


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["write", "view", "double", "read"]), max_size=6))
def test_any_order_of_views_writes_and_reads_is_that_of_plain_tensors(steps):
    tensors = [(lazy(), real())]
    with deferred():
        for place, step in enumerate(steps):
            one, plain = tensors[place % len(tensors)]
            if step == "write":
                one.mul_(2), plain.mul_(2)
            elif step == "view":
                tensors.append((one[:2], plain[:2]))
            elif step == "double":
                tensors.append((one * 2, plain * 2))
            else:
                assert torch.equal(numbers_of(one), plain)
    for one, plain in tensors:
        assert torch.equal(numbers_of(one), plain)


def test_the_same_numbers_are_known_without_reading_them():
    reads = []
    one, other = lazy(reads=reads), lazy(reads=reads)
    assert same_bits(one, other)
    assert same_bits(one.detach(), nn.Parameter(one, requires_grad=False))
    assert not reads
    assert not same_bits(one, lazy(1))
    assert not same_bits(one, one[:2])
    assert torch.equal(bits_of(one), bits_of(real()))


def test_a_parameter_stays_lazy_in_modules_copies_and_pickles():
    linear = nn.Linear(3, 4, bias=False)
    linear.weight = as_parameter(lazy(), requires_grad=True)
    for module in (linear, copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
        assert is_lazy(module.weight)
        assert isinstance(module.weight, nn.Parameter)
        assert module.weight.requires_grad
        with torch.no_grad():
            assert torch.equal(module(torch.ones(2, 3)), torch.ones(2, 3) @ real().t())


def test_text_and_words_tell_one_tensor_from_another():
    with deferred():
        texts = [
            (lazy() * 2).text(),
            (lazy() * 3).text(),
            (lazy(1) * 2).text(),
            lazy()[0].text(),
            lazy()[1].text(),
        ]
    assert len({*texts}) == len(texts)
    written = lazy()
    written.zero_()
    assert written.text() != lazy().text()
    assert repr(lazy()) == "LazyTensor((4, 3), torch.float32, seed 0)"
