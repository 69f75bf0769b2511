"""Functions that a model maps with ``torch.vmap``."""

import copy
import pickle

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import TraceError, symbolic_trace


class Maps(nn.Module):
    """A module that maps a function of a row, of itself and of its input."""

    def __init__(self, function, **settings):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("table", torch.randn(7))
        self.function = function
        self.settings = settings

    def forward(self, x):
        return torch.vmap(lambda row: self.function(self, x, row), **self.settings)(x)


CASES = {
    "parameters and modules": (lambda m, x, row: m.linear(row) * m.weight, {}),
    "the input itself": (lambda m, x, row: x @ row, {}),
    "sizes": (lambda m, x, row: row * x.shape[0] + torch.arange(x.shape[1]), {}),
    "another dimension": (lambda m, x, row: row.cumsum(0), {"in_dims": 1, "out_dims": 1}),
    "structures": (lambda m, x, row: {"a": row.sum(), "b": (row * 2, row - 1)}, {}),
    "writes": (lambda m, x, row: row.clone().mul_(2).add_(m.table[:4]), {}),
    "chunks": (lambda m, x, row: row.softmax(0), {"chunk_size": 2}),
    "maps inside": (lambda m, x, row: torch.vmap(lambda a, b: a * b + m.weight[0])(row, x[0]), {}),
    "constants": (lambda m, x, row: row + torch.tensor([1.0, 2.0, 3.0, 4.0]), {}),
    "what it returns unchanged": (lambda m, x, row: (row, row * 1), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_mapped_is_followed_at_any_size(case):
    torch.manual_seed(0)
    function, settings = CASES[case]
    model = Maps(function, **settings)
    traced = symbolic_trace(model, (torch.randn(3, 4),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    for module in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert_agree(module, model, (torch.randn(5, 4),))


def test_random_numbers_are_drawn_as_the_model_draws_them():
    model = Maps(lambda m, x, row: row + torch.randn(4), randomness="different")
    traced = symbolic_trace(model, (torch.randn(3, 4),), check=False)
    x = torch.randn(5, 4)
    drawn = []
    for module in (model, traced):
        torch.manual_seed(1)
        drawn.append(module(x))
    assert torch.equal(*drawn)


class TakesRow(torch.autograd.Function):
    """Torch does not say of which shape its result is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, index):
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


@pytest.mark.parametrize("check", [True, False])
def test_what_would_be_checked_inside_of_what_is_mapped_is_refused(check):
    class MapsOnRealInputs(nn.Module):
        def forward(self, x):
            rows = torch.arange(x.shape[0])
            return torch.vmap(lambda index: TakesRow.apply(x, index))(rows) * float(x.numpy().sum() > -1e9)

    with pytest.raises(TraceError, match="reads data") as caught:
        symbolic_trace(MapsOnRealInputs(), (torch.randn(4, 8),), check=check)
    assert caught.value.code == "read-in-vmap"
