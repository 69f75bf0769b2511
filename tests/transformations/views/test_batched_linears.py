"""Linear layers of transposed inputs, which torch decomposes to products of batches."""

import copy

import pytest
import torch
from exactness import check, reasons
from torch import nn

from fxlab import FoldConstants, FuseBiasInLinear, MergeLinears, compose, from_exported

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class OfImage(nn.Module):
    """Linears of an image, as attention in diffusion models reads it: with channels last."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 6), nn.Linear(4, 6)
        self.value = nn.Linear(4, 6, bias=False)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        return (self.query(x) * 0.3 @ self.key(x).transpose(-1, -2)).relu() @ self.value(x)


def decomposed(model, x):
    gm = from_exported(torch.export.export(model, (x,)).run_decompositions())
    assert gm.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    return gm


@pytest.fixture
def model():
    return OfImage().eval()


X = torch.randn(2, 4, 3, 3)


@pytest.mark.often(1)
@pytest.mark.parametrize(("pass_", "marked"), [(MergeLinears(), 1), (FuseBiasInLinear(), 2)])
def test_passes_rewrite_them_and_write_them_out_again(model, pass_, marked):
    gm = decomposed(model, X)
    check(pass_, copy.deepcopy(gm), X, marked=marked, gm=gm)


def test_frozen_weights_stay_those_of_linears_when_constants_are_folded(model):
    gm = decomposed(model.requires_grad_(False), X)
    assert set(reasons(FoldConstants(), gm).values()) == {"transposed-weight"}
    check(compose(FoldConstants(), MergeLinears()), copy.deepcopy(gm), X, marked=1, gm=gm)
