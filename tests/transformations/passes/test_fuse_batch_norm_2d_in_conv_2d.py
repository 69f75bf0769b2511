"""FuseBatchNorm2dInConv2d: what it folds, what it leaves alone, and that it is taken back exactly."""

import pytest
import torch
from exactness import (
    assert_close,
    assert_is,
    before_and_after,
    check,
    refused,
    snapshot,
    traced,
    with_statistics,
)
from expecttest import assert_expected_inline
from torch import fx, nn

from fxlab import FuseBatchNorm2dInConv2d

PIXELS = (2, 3, 8, 8)


class ConvNorm(nn.Module):
    """A convolution and a batch norm in evaluation mode, with statistics that are not trivial."""

    def __init__(self, conv=None, norm=None, dtype=None):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3) if conv is None else conv
        self.norm = nn.BatchNorm2d(4) if norm is None else norm
        self.eval().to(dtype)
        with_statistics(self.norm)

    def forward(self, x):
        return self.norm(self.conv(x))


def why_not(model, gm=None):
    return refused(FuseBatchNorm2dInConv2d(), traced(model) if gm is None else gm)


def test_the_graph_before_and_after():
    gm = traced(ConvNorm())
    assert_expected_inline(
        before_and_after(FuseBatchNorm2dInConv2d(), gm),
        """\
x = input
conv = self.conv(x)  # Conv2d: weight (4, 3, 3, 3), bias (4,)
norm = self.norm(conv)  # BatchNorm2d: weight (4,), bias (4,)
return norm

becomes

x = input
evaluation_mode = self.evaluation_mode()  # RequireModes
conv = self.conv(x)  # Conv2d: weight (4, 3, 3, 3), bias (4,)
return conv
""",
    )


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(3, 4, 3, bias=False),
        nn.Conv2d(3, 4, 1),
        nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2),
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(3, 4, (1, 3), padding="same", padding_mode="circular"),
    ],
    ids=str,
)
def test_the_batch_norm_is_folded_into_weight_and_bias(conv):
    gm = check(FuseBatchNorm2dInConv2d(), ConvNorm(conv), torch.randn(PIXELS), marked=1)
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert not hasattr(gm, "norm")
    assert repr(gm.conv).replace(", bias=False", "") == repr(conv).replace(", bias=False", "")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_are_kept(dtype):
    gm = check(
        FuseBatchNorm2dInConv2d(),
        ConvNorm(dtype=dtype),
        torch.randn(PIXELS, dtype=dtype),
        marked=1,
    )
    assert {parameter.dtype for parameter in gm.parameters()} == {dtype}


def test_arguments_by_keyword():
    class ByKeyword(ConvNorm):
        def forward(self, x):
            return self.norm(input=self.conv(input=x))

    check(FuseBatchNorm2dInConv2d(), ByKeyword(), torch.randn(PIXELS), marked=1)


def test_each_of_several_in_a_row_is_marked():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5)
    )
    check(FuseBatchNorm2dInConv2d(), model.eval(), torch.randn(PIXELS), marked=2)


def test_only_the_first_of_two_batch_norms_in_a_row_is_folded_at_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)).eval()
    gm = traced(model)
    before = snapshot(gm)
    x = torch.randn(PIXELS)
    fuse = FuseBatchNorm2dInConv2d()
    assert_close(fuse(fuse(gm))(x), model(x))
    assert_is(fuse(gm, reverse=True), before)


def test_the_weights_of_an_eval_module_inside_a_training_one_are_folded():
    model = ConvNorm()
    model.conv.train()
    gm = check(FuseBatchNorm2dInConv2d(), model, torch.randn(PIXELS), marked=1)
    assert gm.conv.training


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_frozen_parameters_stay_frozen(part):
    model = ConvNorm()
    getattr(model.conv, part).requires_grad_(False)
    gm = check(FuseBatchNorm2dInConv2d(), model, torch.randn(PIXELS), marked=1)
    assert not getattr(gm.conv, part).requires_grad


def test_training_mode_is_left_alone():
    model = ConvNorm()
    model.norm.train()
    assert why_not(model) == "training-mode"


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_without_running_statistics_is_left_alone(training):
    model = ConvNorm(norm=nn.BatchNorm2d(4, track_running_stats=False)).train(training)
    assert why_not(model) == ("training-mode" if training else "no-running-statistics")


def test_a_convolution_that_others_read_is_left_alone():
    class Branches(ConvNorm):
        def forward(self, x):
            conv = self.conv(x)
            return self.norm(conv), conv.sum()

    assert why_not(Branches()) == "other-users"


@pytest.mark.parametrize("part", ["conv", "norm"])
def test_a_module_that_is_called_twice_is_left_alone(part):
    class Twice(ConvNorm):
        def forward(self, x):
            return super().forward(x), getattr(self, part)(x)

    model = Twice(nn.Conv2d(4, 4, 3))
    assert why_not(model) == "called-repeatedly"


def test_the_same_pair_twice_is_left_alone():
    class Twice(ConvNorm):
        def forward(self, x):
            return super().forward(x), super().forward(x + 1)

    model = Twice()
    gm = check(FuseBatchNorm2dInConv2d(), model, torch.randn(PIXELS), marked=0)
    assert gm.conv is model.conv


@pytest.mark.parametrize("read", ["conv.weight", "conv.bias", "norm.weight", "norm.running_mean"])
def test_a_tensor_that_is_read_elsewhere_too_is_left_alone(read):
    class Reads(ConvNorm):
        def forward(self, x):
            return super().forward(x), x.sum() * self.get_parameter_or_buffer()

        def get_parameter_or_buffer(self):
            module, name = read.split(".")
            return getattr(self.get_submodule(module), name)

    assert why_not(Reads()) == "shared-parameter"


@pytest.mark.parametrize("part", ["conv", "norm"])
@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda m, args, out: out * 2),
        lambda module: module.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda module: module.register_full_backward_hook(lambda m, gi, go: None),
    ],
)
def test_a_hooked_module_is_left_alone(part, register):
    model = ConvNorm()
    register(getattr(model, part))
    assert why_not(model) == "hooked"


def test_a_subclass_is_left_alone():
    class Frozen(nn.BatchNorm2d):
        def forward(self, x):
            return 2 * super().forward(x)

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.BatchNorm2d) or super().is_leaf_module(m, name)

    model = ConvNorm(norm=Frozen(4))
    assert why_not(model, fx.GraphModule(model, Leaves().trace(model))) == "unexpected-class"


def test_a_parametrized_convolution_is_left_alone():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Conv2d) or super().is_leaf_module(m, name)

    model = ConvNorm()
    nn.utils.parametrizations.weight_norm(model.conv)
    assert why_not(model, fx.GraphModule(model, Leaves().trace(model))) == "parametrized"


def test_mixed_dtypes_are_left_alone_and_not_cast():
    model = ConvNorm()
    model.norm.double()
    assert why_not(model) == "mixed-dtypes"


def test_a_batch_norm_of_another_number_of_features_is_left_alone():
    assert why_not(ConvNorm(norm=nn.BatchNorm2d(5))) == "features-differ"


def test_weights_that_overflow_are_left_alone():
    model = ConvNorm(dtype=torch.float16)
    with torch.no_grad():
        model.norm.weight.fill_(6e4)
        model.conv.weight.fill_(6e4)
    assert why_not(model) == "not-finite"


def test_variances_near_zero_are_folded_in_double_precision():
    model = ConvNorm(norm=nn.BatchNorm2d(4, eps=1e-12))
    with torch.no_grad():
        model.norm.running_var.zero_()
    check(FuseBatchNorm2dInConv2d(), model, torch.randn(PIXELS), marked=1, tolerance=1e-3)


def test_a_change_of_grad_mode_in_between_keeps_them_apart():
    graph = fx.Graph()
    graph.call_function(torch._C._set_grad_enabled, (False,))
    conv = graph.call_module("conv", (graph.placeholder("x"),))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output(graph.call_module("norm", (conv,)))
    model = ConvNorm()
    assert why_not(model, fx.GraphModule(model, graph)) == "mode-changes-in-between"


def test_an_input_of_several_arguments_is_no_candidate():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("norm", (graph.call_module("conv", (x,)),)))
    gm = fx.GraphModule(ConvNorm(), graph)
    check(FuseBatchNorm2dInConv2d(), ConvNorm(), torch.randn(PIXELS), marked=1)
    next(node for node in gm.graph.nodes if node.name == "norm").kwargs = {"extra": 1}
    assert FuseBatchNorm2dInConv2d().candidates(gm) == []


def test_a_module_cast_since_stays_cast():
    fuse = FuseBatchNorm2dInConv2d()
    gm = fuse(traced(ConvNorm())).double()
    gm = fuse(gm, reverse=True)
    assert {parameter.dtype for parameter in gm.parameters()} == {torch.float64}
    assert gm.norm.running_mean.dtype == torch.float64


class Joined(nn.Module):
    """A batch norm of two convolutions, side by side."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(8)
        with_statistics(self.eval().norm)

    def forward(self, x):
        return self.norm(torch.cat([self.a(x), self.b(x)], 1))


def test_a_batch_norm_of_concatenated_convolutions_says_what_stands_between():
    assert why_not(Joined()) == "other-operator"
    (reason,) = FuseBatchNorm2dInConv2d().explain(traced(Joined())).reason
    assert "cat" in reason
