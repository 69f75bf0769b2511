"""Batch norms fused into convolutions and linears: what is folded, what stays, and that it comes back.

Which modules may be replaced at all is tried on linears, in test_merge_linears.py.
"""

import copy
import operator

import pytest
import torch
from exactness import assert_close, check, refused, shapes_known, traced, with_statistics
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

import fxlab
from fxlab import (
    FuseBatchNorm1dInConv1d,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBatchNorm3dInConv3d,
    FuseBatchNormInConvTranspose,
)

NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
PASSES = {
    2: FuseBatchNorm1dInLinear(),
    3: FuseBatchNorm1dInConv1d(),
    4: FuseBatchNorm2dInConv2d(),
    5: FuseBatchNorm3dInConv3d(),
}


class Pair(nn.Module):
    """A layer and a batch norm in evaluation mode, with statistics that are not trivial."""

    def __init__(self, layer=None, norm=None, dtype=None, **arguments):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3) if layer is None else layer
        self.norm = NORMS[self.layer.weight.dim()](self.features(), **arguments) if norm is None else norm
        self.eval().to(dtype)
        with_statistics(self.norm)

    def features(self):
        return self.layer.out_features if isinstance(self.layer, nn.Linear) else self.layer.out_channels

    def forward(self, x):
        return self.norm(self.layer(x))


class NormFirst(Pair):
    """A batch norm and a linear."""

    def __init__(self, layer=None, norm=None, **arguments):
        super().__init__(nn.Linear(6, 4) if layer is None else layer, norm, **arguments)

    def features(self):
        return self.layer.in_features

    def forward(self, x):
        return self.layer(self.norm(x))


def linear_pair(order, *arguments, **settings):
    return order(nn.Linear(6, 4, *arguments), **settings)


ORDERS = pytest.mark.parametrize("order", [Pair, NormFirst])


def pass_for(model):
    is_transposed = getattr(model.layer, "transposed", False)
    return FuseBatchNormInConvTranspose() if is_transposed else PASSES[model.layer.weight.dim()]


def sample(model, dtype=None):
    """Return an input of a pair; no size of it is that of another."""
    layer = model.layer
    if isinstance(layer, nn.Linear):
        return torch.randn(2, layer.in_features, dtype=dtype)
    return torch.randn(2, layer.in_channels, *range(7, 5 + layer.weight.dim()), dtype=dtype)


def check_fused(model, x=None, **given):
    x = sample(model) if x is None else x
    return check(pass_for(model), model, x, marked=1, gm=shapes_known(model, x), tolerance=1e-4, **given)


def why_not(model, x=None, gm=None):
    gm = shapes_known(model, sample(model) if x is None else x) if gm is None else gm
    return refused(pass_for(model), gm)


CONVS = [
    nn.Conv1d(3, 4, 3),
    nn.Conv1d(4, 6, 3, groups=2, bias=False, stride=2, dilation=2, padding=1),
    nn.Conv1d(3, 4, 3, padding="same", padding_mode="circular"),
    nn.Conv2d(3, 4, 3),
    nn.Conv2d(3, 4, 3, bias=False),
    nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2),
    nn.Conv2d(3, 4, 3, padding="same"),
    nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
    nn.Conv2d(3, 4, (1, 3), padding="same", padding_mode="circular"),
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


@pytest.mark.each_value
@pytest.mark.parametrize("conv", CONVS, ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_is_folded_into_a_convolution(conv, affine):
    gm = check_fused(Pair(conv, affine=affine))
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert not hasattr(gm, "norm")
    assert type(gm.layer) is type(conv)
    assert repr(gm.layer).replace(", bias=False", "") == repr(conv).replace(", bias=False", "")
    assert gm.layer.transposed == conv.transposed
    assert gm.layer.weight.is_contiguous()


@ORDERS
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_is_folded_into_a_linear(order, bias, affine):
    gm = check_fused(linear_pair(order, bias, affine=affine))
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert not hasattr(gm, "norm")
    assert gm.layer.bias is not None


@ORDERS
@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_none_and_of_one(order, size):
    check_fused(linear_pair(order), torch.randn(size, 6))


@ORDERS
def test_symbolic_sizes_of_a_linear_are_read_without_fixing_them(order):
    model = linear_pair(order)
    gm = fxlab.symbolic_trace(model, (torch.randn(2, 6),))
    gm = check(FuseBatchNorm1dInLinear(), model, torch.randn(5, 6), marked=1, gm=gm)
    assert gm(torch.randn(1, 6)).shape == (1, 4)


def test_images_and_volumes_need_no_shape():
    for conv in (nn.Conv3d(3, 4, 2), nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose3d(3, 4, 2)):
        model = Pair(conv)
        check(pass_for(model), model, sample(model), marked=1)


def test_an_output_size_that_is_asked_for_is_still_asked_for():
    class Asks(Pair):
        def forward(self, x):
            return self.norm(self.layer(x, output_size=(15, 18)))

    model = Asks(nn.ConvTranspose2d(3, 4, 3, stride=2))
    assert check_fused(model)(sample(model)).shape == (2, 4, 15, 18)


def changed(change, model=None):
    model = Pair() if model is None else model
    change(model)
    return model


class Branches(Pair):
    def forward(self, x):
        value = self.layer(x)
        return self.norm(value), value.sum()


class BranchesOfNorm(NormFirst):
    def forward(self, x):
        value = self.norm(x)
        return self.layer(value), value.sum()


class Reads(Pair):
    """A pair, one of whose tensors is read elsewhere too."""

    def __init__(self, read):
        super().__init__()
        self.read = read.split(".")

    def forward(self, x):
        return super().forward(x), x.sum() * getattr(getattr(self, self.read[0]), self.read[1])


class Again(Pair):
    """A pair, of which something is called once more."""

    def __init__(self, again):
        super().__init__(nn.Conv2d(3, 3, 3))
        self.again = again

    def forward(self, x):
        return super().forward(x), self.again(self, x)


class Joined(Pair):
    """A batch norm of two convolutions, side by side."""

    def __init__(self):
        super().__init__(norm=nn.BatchNorm2d(8))
        self.other = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.norm(torch.cat([self.layer(x), self.other(x)], 1))


class Flattened(Pair):
    def forward(self, x):
        x = self.layer(x)
        return self.norm(x.flatten(0, 1)).reshape_as(x)


def overflow(model):
    with torch.no_grad():
        model.norm.weight.fill_(6e4)
        model.layer.weight.fill_(6e4)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (changed(lambda model: model.norm.train()), "training-mode"),
        (Pair(track_running_stats=False).train(), "training-mode"),
        (Pair(track_running_stats=False), "no-running-statistics"),
        (Branches(), "other-users"),
        (BranchesOfNorm(), "other-users"),
        (Again(lambda self, x: self.layer(x)), "called-repeatedly"),
        (Again(lambda self, x: self.norm(x)), "called-repeatedly"),
        (Again(lambda self, x: self.norm(self.layer(x + 1))), "called-repeatedly"),
        *(
            (Reads(name), "shared-parameter")
            for name in ("layer.weight", "layer.bias", "norm.weight", "norm.running_mean")
        ),
        (changed(lambda model: model.layer.register_forward_hook(lambda *_: None)), "hooked"),
        (changed(lambda model: model.norm.register_forward_hook(lambda *_: None)), "hooked"),
        (changed(overflow, Pair(dtype=torch.float16)), "not-finite"),
        (Joined(), "other-operator"),
    ],
)
def test_what_is_no_fixed_scaling_of_a_layer_alone_is_left_alone(model, code):
    x = sample(model, model.layer.weight.dtype)
    assert why_not(model, gm=shapes_known(model, x)) == code


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (changed(lambda model: model.norm.double()), "mixed-dtypes"),
        (Pair(norm=nn.BatchNorm2d(5)), "features-differ"),
    ],
)
def test_what_does_not_run_is_left_alone(model, code):
    assert why_not(model, gm=traced(model)) == code


def test_a_batch_norm_of_a_flattened_linear_says_what_stands_between():
    gm = fxlab.symbolic_trace(linear_pair(Flattened), torch.randn(2, 7, 6))
    assert refused(FuseBatchNorm1dInLinear(), gm) == "other-operator"
    (reason,) = FuseBatchNorm2dInConv2d().explain(traced(Joined())).reason
    assert "cat" in reason


@pytest.mark.parametrize(
    "model",
    [linear_pair(Pair), linear_pair(NormFirst), Pair(nn.Conv1d(3, 5, 3))],
    ids=["last", "first", "conv"],
)
def test_an_unknown_shape_is_left_alone(model):
    assert why_not(model, gm=traced(model)) == "unknown-shape"


def test_three_dimensions_are_left_alone_even_where_both_sizes_agree():
    assert why_not(Pair(nn.Linear(4, 4)), torch.randn(2, 4, 4)) == "dimensions"


@pytest.mark.parametrize("conv", [nn.Conv1d(3, 5, 3), nn.ConvTranspose1d(3, 5, 3)], ids=str)
def test_a_single_sample_is_a_batch_to_the_norm_and_left_alone(conv):
    model, x = Pair(conv), torch.randn(3, 7 if not conv.transposed else 3)
    assert model(x).shape == (5, 5)  # normalised along the length, which is as long as there are channels
    assert why_not(model, x) == "dimensions"


def graph_of_pair(first, between, last, model):
    """Build a call of one part, something else, and a call of the other part on the result of the first."""
    graph = fx.Graph()
    x = graph.call_function(operator.mul, (graph.placeholder("x"), 2.0))
    value = graph.call_module(first, (x,))
    between(graph, x, value)
    graph.output(graph.call_module(last, (value,)))
    gm = fx.GraphModule(model.requires_grad_(False), graph)
    ShapeProp(gm).propagate(sample(model))
    return gm


@pytest.mark.parametrize(
    ("between", "code"),
    [
        (lambda graph, x, value: graph.call_method("zero_", (x,)), "written-in-between"),
        (lambda graph, x, value: graph.call_method("zero_", (value,)), "other-users"),
        (
            lambda graph, x, value: graph.call_function(torch._C._set_grad_enabled, (True,)),
            "mode-changes-in-between",
        ),
    ],
)
def test_what_happens_between_batch_norm_and_linear_keeps_them_apart(between, code):
    model = NormFirst()
    gm = graph_of_pair("norm", between, "layer", model)
    check(FuseBatchNorm1dInLinear(), copy.deepcopy(gm), sample(model), marked=0, gm=gm)
    assert why_not(model, gm=gm) == code


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(3, 4, 1), nn.Linear(3, 4)], ids=str)
def test_a_batch_norm_that_alone_is_trained_is_left_alone(layer):
    model = Pair(layer)
    layer.requires_grad_(False)
    assert why_not(model) == "only-norm-trained"
    model.norm.requires_grad_(False)
    layer.weight.requires_grad_(True)
    assert [each.requires_grad for each in check_fused(model).layer.parameters()] == [True, False]


@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_weights_trained_since_are_brought_back(conv):
    model = Pair(conv)
    x, pass_ = sample(model), pass_for(model)
    gm = pass_(shapes_known(model, x))
    with torch.no_grad():
        gm.layer.weight.add_(0.1)
        gm.layer.bias.add_(0.2)
    expected = gm(x)
    assert_close(pass_(gm, reverse=True)(x), expected, 1e-4)


def test_a_module_cast_since_stays_cast():
    fuse = FuseBatchNorm2dInConv2d()
    gm = fuse(fuse(traced(Pair())).double(), reverse=True)
    assert {parameter.dtype for parameter in gm.parameters()} == {torch.float64}
    assert gm.norm.running_mean.dtype == torch.float64


def scaled_by_zero(model):
    nn.init.zeros_(model.norm.weight)
    return model


@pytest.mark.parametrize(
    "model", [NormFirst(nn.Linear(6, 4, bias=False)), scaled_by_zero(Pair(nn.Linear(6, 4)))]
)
def test_what_has_no_place_to_go_back_to_is_told(model):
    fuse, bias = FuseBatchNorm1dInLinear(), copy.deepcopy(model.layer.bias)
    gm = fuse(shapes_known(model, sample(model)))
    with torch.no_grad():
        gm.layer.bias.add_(1.0)
    with pytest.warns(UserWarning, match="cannot bring what was written"):
        fuse(gm, reverse=True)
    assert gm.layer is model.layer
    assert str(gm.layer.bias) == str(bias)
