"""FuseBatchNormBeforeConv: where the shift may go into the bias, and where padding forbids it."""

import pytest
import torch
from exactness import (
    assert_close,
    assert_is,
    before_and_after,
    check,
    refused,
    shapes_known,
    snapshot,
    traced,
    with_statistics,
)
from expecttest import assert_expected_inline
from torch import nn

from fxlab.transformations import FuseBatchNorm2dInConv2d, FuseBatchNormBeforeConv

NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
FUSE = FuseBatchNormBeforeConv()


class NormConv(nn.Module):
    """A batch norm in evaluation mode, with statistics that are not trivial, and a convolution."""

    def __init__(self, conv, shift=True, **arguments):
        super().__init__()
        self.norm = with_statistics(NORMS[conv.weight.dim() - 2](conv.in_channels, **arguments), shift)
        self.conv = conv

    def forward(self, x):
        return self.conv(self.norm(x))


def sample(conv, dtype=None):
    return torch.randn(2, conv.in_channels, *range(7, 5 + conv.weight.dim()), dtype=dtype)


def why_not(model, gm=None):
    x = sample(model.conv, model.conv.weight.dtype)
    return refused(FUSE, shapes_known(model, x) if gm is None else gm)


CONVS = [
    nn.Conv1d(3, 4, 3),
    nn.Conv1d(4, 6, 3, groups=2, bias=False, stride=2, dilation=2),
    nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"),
    nn.Conv2d(3, 4, 3),
    nn.Conv2d(3, 4, 1, padding="same"),
    nn.Conv2d(6, 4, (2, 3), padding="valid", groups=2),
    nn.Conv2d(4, 4, 3, padding=2, padding_mode="reflect", groups=4),
    nn.Conv2d(3, 4, 3, padding="same", padding_mode="replicate", bias=False),
    nn.Conv3d(3, 4, 2),
    nn.Conv3d(4, 8, (1, 2, 3), groups=4, bias=False),
]


def test_the_graph_before_and_after():
    gm = traced(NormConv(nn.Conv2d(3, 4, 2)))
    assert_expected_inline(
        before_and_after(FUSE, gm),
        """\
x = input
norm = self.norm(x)  # BatchNorm2d: weight (3,), bias (3,)
conv = self.conv(norm)  # Conv2d: weight (4, 3, 2, 2), bias (4,)
return conv

becomes

x = input
evaluation_mode = self.evaluation_mode()  # RequireModes
conv = self.conv(x)  # Conv2d: weight (4, 3, 2, 2), bias (4,)
return conv
""",
    )


@pytest.mark.parametrize("conv", CONVS, ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_the_batch_norm_is_folded_into_weight_and_bias(conv, affine):
    model, x = NormConv(conv, affine=affine), sample(conv)
    gm = check(FUSE, model, x, marked=1, gm=shapes_known(model, x), tolerance=1e-4)
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert not hasattr(gm, "norm")
    assert repr(gm.conv).replace(", bias=False", "") == repr(conv).replace(", bias=False", "")


PADDED = [
    nn.Conv1d(3, 4, 3, padding=1),
    nn.Conv2d(3, 4, 3, padding=1),
    nn.Conv2d(3, 4, 1, padding=1),
    nn.Conv2d(3, 4, 3, padding="same"),
    nn.Conv2d(3, 4, (1, 3), padding="same"),
    nn.Conv2d(3, 4, 3, padding=(0, 1)),
    nn.Conv3d(3, 4, 2, padding=(0, 0, 1)),
]


@pytest.mark.parametrize("conv", PADDED, ids=str)
def test_zeros_that_are_padded_are_not_shifted(conv):
    assert why_not(NormConv(conv)) == "zero-padding"


@pytest.mark.parametrize("conv", PADDED, ids=str)
def test_without_a_shift_padding_is_of_no_concern(conv):
    model, x = NormConv(conv, shift=False), sample(conv)
    check(FUSE, model, x, marked=1, gm=shapes_known(model, x))


def test_padding_that_was_set_after_the_convolution_was_made_counts():
    model = NormConv(nn.Conv2d(3, 4, 3))
    model.conv.padding = (1, 1)
    assert why_not(model) == "zero-padding"


def test_transposed_convolutions_are_no_candidates():
    model = NormConv(nn.ConvTranspose2d(3, 4, 3))
    check(FUSE, model, sample(model.conv), marked=0)
    assert FUSE.candidates(traced(model)) == []


def test_a_single_sample_and_an_unknown_shape_are_left_alone():
    model = NormConv(nn.Conv1d(3, 4, 3))
    x = torch.randn(3, 3)  # a batch of three vectors to the norm, three channels to the convolution
    assert why_not(model, shapes_known(model, x)) == "dimensions"
    assert why_not(model, traced(model)) == "unknown-shape"


def test_an_input_that_is_written_in_between_is_left_alone():
    class Writes(NormConv):
        def forward(self, x):
            normal = self.norm(x)
            x.mul_(2)
            return self.conv(normal)

    assert why_not(Writes(nn.Conv2d(3, 4, 2))) == "written-in-between"


def test_a_norm_that_others_read_is_left_alone():
    class Branches(NormConv):
        def forward(self, x):
            normal = self.norm(x)
            return self.conv(normal), normal

    assert why_not(Branches(nn.Conv2d(3, 4, 2))) == "other-users"


def test_a_norm_between_two_convolutions_goes_into_one_of_them():
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 2)).eval()
    x = torch.randn(2, 3, 6, 6)
    gm = traced(model)
    before = snapshot(gm)
    FuseBatchNorm2dInConv2d()(FUSE(gm))
    assert_close(gm(x), model(x))
    assert len(gm.graph.nodes) == 5  # with the check of the mode
    FuseBatchNorm2dInConv2d()(FUSE(gm, reverse=True))
    assert_close(gm(x), model(x))
    assert_is(FuseBatchNorm2dInConv2d()(gm, reverse=True), before)


@pytest.mark.parametrize("conv", [conv for conv in CONVS if conv.bias is not None], ids=str)
def test_weights_trained_since_are_brought_back(conv):
    model, x = NormConv(conv), sample(conv)
    gm = FUSE(shapes_known(model, x))
    with torch.no_grad():
        gm.conv.weight.add_(0.1)
        gm.conv.bias.add_(0.2)
    expected = gm(x)
    assert_close(FUSE(gm, reverse=True)(x), expected, 1e-3)


def test_a_trained_bias_without_a_place_is_said_to_be_lost():
    gm = FUSE(traced(NormConv(nn.Conv2d(3, 4, 2, bias=False))))
    with torch.no_grad():
        gm.conv.bias.add_(0.2)
    with pytest.warns(UserWarning, match="cannot bring"):
        FUSE(gm, reverse=True)
