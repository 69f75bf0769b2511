"""Batch norms behind 1d, 3d and transposed convolutions: what is folded, and what is left alone.

What concerns modules in general is tried on 2d convolutions, in test_fuse_batch_norm_2d_in_conv_2d.py.
"""

import pytest
import torch
from exactness import (
    assert_close,
    before_and_after,
    check,
    refused,
    shapes_known,
    traced,
    with_statistics,
)
from expecttest import assert_expected_inline
from torch import nn

import fxlab
from fxlab import FuseBatchNorm1dInLinear, FuseBatchNorm2dInConv2d
from fxlab.transformations import (
    FuseBatchNorm1dInConv1d,
    FuseBatchNorm3dInConv3d,
    FuseBatchNormInConvTranspose,
)

NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class ConvNorm(nn.Module):
    """A convolution and a batch norm in evaluation mode, with statistics that are not trivial."""

    def __init__(self, conv, features=None, **arguments):
        super().__init__()
        self.conv = conv
        norm = NORMS[conv.weight.dim() - 2](features or conv.out_channels, **arguments)
        self.norm = with_statistics(norm)

    def forward(self, x):
        return self.norm(self.conv(x))


def sample(conv, dtype=None):
    """Return an input of a convolution; no size of it is that of another."""
    return torch.randn(2, conv.in_channels, *range(7, 5 + conv.weight.dim()), dtype=dtype)


def pass_for(conv):
    if conv.transposed:
        return FuseBatchNormInConvTranspose()
    return {3: FuseBatchNorm1dInConv1d(), 5: FuseBatchNorm3dInConv3d()}[conv.weight.dim()]


def why_not(model, x, shapes=True):
    """Check that a model is left alone; return the code of the reason."""
    pass_ = pass_for(model.conv)
    gm = shapes_known(model, x) if shapes else traced(model)
    check(pass_, model, x, marked=0, gm=gm)
    return refused(pass_, gm)


CONVS = [
    nn.Conv1d(3, 4, 3),
    nn.Conv1d(4, 6, 3, groups=2, bias=False, stride=2, dilation=2, padding=1),
    nn.Conv1d(3, 4, 3, padding="same", padding_mode="circular"),
    nn.Conv3d(3, 4, 2),
    nn.Conv3d(4, 8, (1, 3, 3), groups=4, padding="same", bias=False),
    nn.ConvTranspose1d(3, 4, 3),
    nn.ConvTranspose1d(4, 6, 3, groups=2, stride=2, output_padding=1),
    nn.ConvTranspose2d(3, 4, 3, bias=False),
    nn.ConvTranspose2d(6, 9, (1, 3), groups=3, stride=3, dilation=2, padding=(0, 1)),
    nn.ConvTranspose2d(4, 4, 2, groups=4),
    nn.ConvTranspose3d(3, 4, 2),
    nn.ConvTranspose3d(4, 6, 2, groups=2, bias=False),
]


def test_the_graph_before_and_after():
    gm = traced(ConvNorm(nn.ConvTranspose2d(3, 4, 2)))
    assert_expected_inline(
        before_and_after(FuseBatchNormInConvTranspose(), gm),
        """\
x = input
conv = self.conv(x)  # ConvTranspose2d: weight (3, 4, 2, 2), bias (4,)
norm = self.norm(conv)  # BatchNorm2d: weight (4,), bias (4,)
return norm

becomes

x = input
evaluation_mode = self.evaluation_mode()  # RequireModes
conv = self.conv(x)  # ConvTranspose2d: weight (3, 4, 2, 2), bias (4,)
return conv
""",
    )


@pytest.mark.parametrize("conv", CONVS, ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_the_batch_norm_is_folded_into_weight_and_bias(conv, affine):
    model, x = ConvNorm(conv, affine=affine), sample(conv)
    gm = check(pass_for(conv), model, x, marked=1, gm=shapes_known(model, x), tolerance=1e-4)
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert type(gm.conv) is type(conv)
    assert repr(gm.conv).replace(", bias=False", "") == repr(conv).replace(", bias=False", "")
    assert gm.conv.transposed == conv.transposed
    assert gm.conv.weight.is_contiguous()


@pytest.mark.parametrize("conv", [nn.Conv1d(3, 5, 3), nn.ConvTranspose1d(3, 5, 3)], ids=str)
def test_a_single_sample_is_a_batch_to_the_norm_and_left_alone(conv):
    model = ConvNorm(conv, features=5)
    x = torch.randn(3, 7 if not conv.transposed else 3)
    assert model(x).shape == (5, 5)  # normalised along the length, which is as long as there are channels
    assert why_not(model, x) == "dimensions"


def test_an_unknown_shape_may_be_that_of_a_single_sample_and_is_left_alone():
    model = ConvNorm(nn.Conv1d(3, 5, 3))
    assert why_not(model, sample(model.conv), shapes=False) == "unknown-shape"


def test_images_and_volumes_need_no_shape():
    for conv in (nn.Conv3d(3, 4, 2), nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose3d(3, 4, 2)):
        check(pass_for(conv), ConvNorm(conv), sample(conv), marked=1)


def test_an_output_size_that_is_asked_for_is_still_asked_for():
    class Asks(ConvNorm):
        def forward(self, x):
            return self.norm(self.conv(x, output_size=(15, 18)))

    model = Asks(nn.ConvTranspose2d(3, 4, 3, stride=2))
    gm = check(FuseBatchNormInConvTranspose(), model, sample(model.conv), marked=1)
    assert gm(sample(model.conv)).shape == (2, 4, 15, 18)


@pytest.mark.parametrize("model", [nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(3, 4, 1), nn.Linear(3, 4)], ids=str)
def test_a_batch_norm_that_alone_is_trained_is_left_alone(model):
    norm = nn.BatchNorm1d(4) if isinstance(model, nn.Linear) else nn.BatchNorm2d(4)
    pair = nn.Sequential(model, norm).eval()
    model.requires_grad_(False)
    x = torch.randn(2, 3) if isinstance(model, nn.Linear) else torch.randn(2, 3, 4, 4)
    gm = shapes_known(pair, x)
    for pass_ in (FuseBatchNorm2dInConv2d(), FuseBatchNormInConvTranspose(), FuseBatchNorm1dInLinear()):
        pass_(gm)
    assert gm(x).requires_grad
    norm.requires_grad_(False)
    for pass_ in (FuseBatchNorm2dInConv2d(), FuseBatchNormInConvTranspose(), FuseBatchNorm1dInLinear()):
        pass_(gm)
    assert len(gm.graph.nodes) == 4  # with the check of the mode


@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_weights_trained_since_are_brought_back(conv):
    model, x = ConvNorm(conv), sample(conv)
    pass_ = pass_for(conv)
    gm = pass_(shapes_known(model, x))
    with torch.no_grad():
        gm.conv.weight.add_(0.1)
        gm.conv.bias.add_(0.2)
    expected = gm(x)
    assert_close(pass_(gm, reverse=True)(x), expected, 1e-4)


def test_symbolic_sizes_are_not_fixed():
    model, x = ConvNorm(nn.Conv1d(3, 4, 3)), torch.randn(2, 3, 9)
    gm = fxlab.symbolic_trace(model, (x,))
    check(FuseBatchNorm1dInConv1d(), model, torch.randn(5, 3, 11), marked=1, gm=gm)
