"""Regions of automatic mixed precision inside a model, and around a graph."""

import copy
import pickle

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import Session, symbolic_trace


class Mixed(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.first, self.inside, self.last = (nn.Linear(4, 4) for _ in range(3))
        self.settings = settings

    def forward(self, x):
        x = self.first(x).float()
        with torch.autocast("cpu", **self.settings):
            y = self.inside(x) @ x.t()
            with torch.autocast("cpu", enabled=False):
                z = x @ x.t()
            y = y.add_(1) + x.exp().sum()
        return self.last(x) + y.float().sum(), y, z


@pytest.fixture(params=[{}, {"dtype": torch.float16}, {"enabled": False}])
def model(request):
    torch.manual_seed(0)
    return Mixed(**request.param)


def test_a_region_computes_in_its_dtype_at_any_size(model):
    traced = symbolic_trace(model, (torch.randn(3, 4),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    for rows in (3, 5):
        assert_agree(traced, model, (torch.randn(rows, 4),))


def test_a_region_that_would_matter_elsewhere_only_makes_the_graph_refuse_to_run_there(model):
    traced = symbolic_trace(model, (torch.randn(3, 4),))
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(AssertionError, match="autocast off only"),
    ):
        traced(torch.randn(5, 4))
    assert_agree(traced, model, (torch.randn(5, 4),))


def test_a_question_after_autocast_is_seen():
    class Asks(nn.Module):
        def forward(self, x):
            return x.float() if torch.is_autocast_enabled("cpu") else x * 2

    traced = symbolic_trace(Asks(), (torch.randn(2, 2),))
    with torch.autocast("cpu"), pytest.raises(AssertionError, match="autocast off only"):
        traced(torch.randn(2, 2))
    with torch.autocast("cpu"):
        traced = symbolic_trace(Asks(), (torch.randn(2, 2),))
        assert_agree(traced, Asks(), (torch.randn(3, 2),))


def test_a_graph_that_is_traced_under_autocast_follows_what_is_around_it(model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        traced = symbolic_trace(model, (torch.randn(3, 4),), check=False)
        assert_agree(traced, model, (torch.randn(5, 4),))
    assert not torch.is_autocast_enabled("cpu")


def test_copies_pickles_and_transformations_keep_the_region(model):
    traced = symbolic_trace(model, (torch.randn(3, 4),), check=False)
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert_agree(other, model, (torch.randn(5, 4),))
    session = Session(traced, (torch.randn(3, 4),))
    for name in ("merge-linears", "fuse-bias-in-linear", "change-true-div-to-mul-by-inverse"):
        session.apply(name)
    assert session.verdict().agrees


def test_a_region_that_raises_leaves_nothing_switched_on():
    class Raises(nn.Module):
        def forward(self, x):
            with torch.autocast("cpu"):
                return x @ x.reshape(2, -1)

    traced = symbolic_trace(Raises(), (torch.randn(2, 2),), check=False)
    with pytest.raises((RuntimeError, AssertionError)):
        traced(torch.randn(3, 3))
    assert not torch.is_autocast_enabled("cpu")
