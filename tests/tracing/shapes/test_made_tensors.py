"""Fake tensors of one shape share a storage, which no model may notice."""

import pytest
import torch
from agreement import assert_agree
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from fxlab import symbolic_trace

SHARED = {
    "is": lambda a, b: a.untyped_storage() is b.untyped_storage(),
    "equal": lambda a, b: a.untyped_storage() == b.untyped_storage(),
    "identity": lambda a, b: a.untyped_storage()._cdata == b.untyped_storage()._cdata,
    "typed": lambda a, b: a.storage()._cdata == b.storage()._cdata,
    "alias": lambda a, b: torch._C._is_alias_of(a, b),
    "overlap": lambda a, b: torch._C._overlaps(a, b),
    "reference": lambda a, b: StorageWeakRef(a.untyped_storage()) == StorageWeakRef(b.untyped_storage()),
}


class Compares(nn.Module):
    """Computes something else if two tensors share memory."""

    def __init__(self, share, swallows=False):
        super().__init__()
        self.share, self.swallows = share, swallows
        self.linear = nn.Linear(4, 4)

    def shares(self, a, b):
        try:
            return self.share(a, b)
        except Exception:
            if self.swallows:
                return True
            raise

    def forward(self, x):
        y = self.linear(x)
        a, b, view = y.relu(), y.tanh(), y.T
        return a * (2 if self.shares(a, b) else 3) + b * (5 if self.shares(y, view) else 7)


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("share", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("check", [True, False])
def test_a_model_that_compares_storages_is_recorded_as_it_runs(share, check):
    model = Compares(share)
    traced = symbolic_trace(model, torch.randn(3, 4), check=check)
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, torch.randn(5, 4))


def test_a_model_that_goes_on_after_an_error_is_recorded_as_it_runs():
    model = Compares(SHARED["alias"], swallows=True)
    assert_agree(symbolic_trace(model, torch.randn(3, 4), check=False), model, torch.randn(5, 4))
