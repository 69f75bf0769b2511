"""Passes of fxlab that find nothing name the nearest place, and the first condition that it breaks."""

import pytest
import torch
from exactness import Apply
from torch import nn
from torch.nn import functional as F

import fxlab

X = torch.randn(2, 4, 8, 8)
NEAR = {
    "gate": ("fuse-activation", lambda m, x: x.cos() * torch.sigmoid(x + 1), "other-value", "cos"),
    "sum": (
        "fuse-rms-norm",
        lambda m, x: x * (x.square().sum(-1, True) + 1e-6).rsqrt(),
        "other-operator",
        "sum_1",
    ),
    "unbiased": (
        "fuse-layer-norm",
        lambda m, x: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-6).sqrt(),
        "other-argument",
        "var",
    ),
    "not a product": (
        "fuse-attention",
        lambda m, x: torch.softmax(x @ x.mT, -1) + x,
        "other-operator",
        "add",
    ),
    "behind": (
        "fuse-batch-norm2d-in-conv2d",
        lambda m, x: m.norm(m.conv(x).relu()),
        "other-operator",
        "relu",
    ),
}


def session_of(function, name):
    model = Apply(function, conv=nn.Conv2d(4, 4, 3), norm=nn.BatchNorm2d(4)).eval()
    session = fxlab.Session(model, (X,))
    session.apply(name)
    return session


@pytest.mark.parametrize("kind", NEAR)
def test_the_nearest_place_is_named_with_the_condition_that_it_breaks(kind):
    name, function, code, at = NEAR[kind]
    session = session_of(function, name)
    row, *_ = session.why_not(name).itertuples()
    assert (row.code, row.at, row.matched) == (code, at, False)
    assert set(session.explain(name).code) == {code}
    assert row.reason in str(session.changes(name))
    assert session.why_not(name, row.begins_at).code.iloc[0] == code


def test_what_another_pass_of_the_kind_finds_is_no_near_miss():
    session = session_of(lambda m, x: F.layer_norm(x, (8,)) * x.mean(), "fuse-rms-norm")
    assert str(session.changes("fuse-rms-norm")) == "no changes"

    def centred(m, x):
        return (x - x.mean(-1, True)) * torch.rsqrt((x - x.mean(-1, True)).square().mean(-1, True) + 1e-6)

    assert session_of(centred, "fuse-rms-norm").why_not("fuse-rms-norm").empty


def test_a_pass_with_candidates_tells_of_these_alone():
    session = session_of(lambda m, x: F.relu(x * torch.sigmoid(x)) + x.cos() * x.sigmoid(), "fuse-activation")
    assert session.explain("fuse-activation").matched.all()
    assert "other-value" in session.why_not("fuse-activation").code.tolist()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("fuse-batch-norm1d-in-linear", lambda m, x: m.norm(m.conv(x))),
        ("fuse-batch-norm-in-conv-transpose", lambda m, x: m.norm(m.conv(x).relu())),
        ("fuse-batch-norm3d-in-conv3d", lambda m, x: m.norm(m.conv(x).relu())),
    ],
)
def test_layers_that_a_model_does_not_have_are_no_near_misses(name, function):
    assert session_of(function, name).explain(name).empty
