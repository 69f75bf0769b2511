"""Functions that remember results neither hide tensors from the graph nor keep fake ones."""

import functools

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace


@functools.lru_cache(maxsize=8)
def positions(length, device):
    return torch.arange(length, device=device)


def without_caching_while_compiling(function):
    cached = functools.lru_cache(maxsize=8)(function)

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) if torch.compiler.is_compiling() else cached(*args)

    return wrapper


class Table:
    def __init__(self, entries):
        self.entries = entries

    @functools.cached_property
    def entries_doubled(self):
        return {key: 2 * value for key, value in self.entries.items()}

    @functools.cached_property
    def as_tensor(self):
        table = torch.zeros(len(self.entries))
        for key, value in self.entries_doubled.items():
            table[key] = value
        return table


class LooksUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Table({0: 3, 1: 5, 2: 7})

    def forward(self, x):
        return self.table.as_tensor[x]


class Remembers(nn.Module):
    @functools.lru_cache(maxsize=8)  # noqa: B019 (that it keeps the module alive is no matter here)
    def scale(self, length):
        return torch.full((length,), 2.0)

    @staticmethod
    @without_caching_while_compiling
    def shift(length):
        return torch.ones(length)

    def forward(self, x):
        length = x.shape[-1]
        return x * self.scale(length) + self.shift(length) + positions(length, x.device)


def test_results_of_earlier_runs_are_not_constants():
    model, x = Remembers(), torch.randn(2, 5)
    model(x)
    traced = symbolic_trace(model, (x,))
    assert not traced.meta["trace"].of_kind("constant")
    assert_agree(traced, model, (torch.randn(3, 7),))


def test_results_of_the_recorded_run_are_not_given_to_later_ones():
    model, x = Remembers(), torch.randn(2, 6)
    symbolic_trace(model, (x,), dynamic=False, check=False)
    output = model(x)
    assert type(output) is torch.Tensor
    assert torch.equal(output, x * 2 + torch.ones(6) + torch.arange(6))


def test_functions_remember_again_afterwards():
    model, x = Remembers(), torch.randn(2, 5)
    symbolic_trace(model, (x,))
    model(x)
    hits = positions.cache_info().hits
    model(x)
    assert positions.cache_info().hits == hits + 1


@pytest.mark.parametrize("has_run", [False, True])
def test_a_property_that_remembers_a_tensor_is_a_constant(has_run):
    model, x = LooksUp(), torch.tensor([2, 0])
    if has_run:
        model(x)
    traced = symbolic_trace(model, (x,))
    assert len(traced.meta["trace"].of_kind("constant")) == 1
    assert_agree(traced, model, (torch.tensor([1, 1, 0]),))


def test_a_property_gives_no_fake_tensor_afterwards():
    model, x = LooksUp(), torch.tensor([2, 0])
    symbolic_trace(model, (x,), check=False)
    assert not vars(model.table).keys() - {"entries"}
    assert model(x).tolist() == [14, 6]
