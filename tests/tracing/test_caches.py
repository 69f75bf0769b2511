"""Functions that remember results neither hide tensors from the graph nor keep fake ones."""

import functools

import torch
from agreement import assert_agree
from torch import nn

from fxlab.tracing import symbolic_trace


@functools.lru_cache(maxsize=8)
def positions(length, device):
    return torch.arange(length, device=device)


def without_caching_while_compiling(function):
    cached = functools.lru_cache(maxsize=8)(function)

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) if torch.compiler.is_compiling() else cached(*args)

    return wrapper


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
