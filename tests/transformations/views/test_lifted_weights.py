"""Layers whose weights a tool has lifted: to attributes of the outermost module, or to its inputs."""

import copy

import pytest
import torch
from exactness import assert_equals, assert_is, reasons, snapshot
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import fxlab
from fxlab import FuseBatchNorm2dInConv2d, FuseBiasInLinear, MergeLinears
from fxlab.transformations.rewriting.rewrite_pass import RewritePass


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return (self.query(x) * 0.3) @ self.key(x).t()


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        return self.norm(self.conv(x))


class AtTheRoot(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        return nn.functional.linear(x, self.w, self.b)


CASES: dict[str, tuple[type[nn.Module], tuple[int, ...], RewritePass]] = {
    "merge": (Attention, (3, 4), MergeLinears()),
    "bias": (Attention, (3, 4), FuseBiasInLinear()),
    "norm": (Image, (2, 3, 5, 5), FuseBatchNorm2dInConv2d()),
    "root": (AtTheRoot, (3, 4), FuseBiasInLinear()),
}


def lifted(model, x):
    """Return what make_fx makes of a model: each weight is an attribute of its own."""
    with torch.no_grad():
        gm = make_fx(model)(x)
    gm.graph.eliminate_dead_code()  # the statistics that a batch norm returns beside
    gm.recompile()
    return gm


@pytest.mark.parametrize("name", CASES)
def test_weights_that_are_attributes_of_the_outermost_module_stay_there(name):
    build, shape, pass_ = CASES[name]
    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(shape)
    gm = lifted(model, x)
    before, tensors = snapshot(gm), [*gm.parameters()]
    assert pass_.explain(gm)["matched"].all()
    changed = pass_(copy.deepcopy(gm))
    assert fxlab.verdict(gm, changed, (x,)).agrees
    assert_equals(pass_(changed, reverse=True), before)
    pass_(gm)
    assert {id(tensor) for tensor in tensors} < {id(tensor) for tensor in gm.parameters()}
    assert_is(pass_(gm, reverse=True), before)


@pytest.mark.parametrize("name", CASES)
def test_weights_that_were_trained_since_go_back_to_them(name):
    build, shape, pass_ = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    gm = lifted(build().eval(), x)
    tensors = [*gm.parameters()]
    pass_(gm)
    known = {id(tensor) for tensor in tensors}
    new = [tensor for tensor in gm.parameters() if id(tensor) not in known]
    with torch.no_grad():
        for tensor in new:
            tensor.mul_(1.25)
    if name in ("bias", "root"):  # the column of ones is no weight
        assert new
    expected = gm(x)
    pass_(gm, reverse=True)
    torch.testing.assert_close(gm(x), expected)
    assert [*map(id, gm.parameters())] == [*map(id, tensors)]


def test_a_weight_of_two_layers_stays():
    class Tied(AtTheRoot):
        def forward(self, x):
            return nn.functional.linear(x, self.w, self.b) + nn.functional.linear(x, self.w)

    gm = torch.fx.symbolic_trace(Tied())
    assert set(reasons(FuseBiasInLinear(), gm).values()) == {"other-users"}


@pytest.mark.parametrize("pass_", [MergeLinears(), FuseBiasInLinear()])
def test_weights_that_are_inputs_are_named(pass_):
    model, x = Attention(), torch.randn(3, 4)
    weights = dict(model.named_parameters())
    gm = make_fx(lambda weights, x: functional_call(model, weights, (x,)))(weights, x)
    assert set(reasons(pass_, gm).values()) == {"weight-is-input"}
    words = pass_.explain(gm)["reason"].iloc[0]
    assert "weights_1 of the graph" in words or "weights_3 of the graph" in words, words
