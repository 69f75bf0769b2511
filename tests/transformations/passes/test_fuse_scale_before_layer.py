"""FuseScaleBeforeLayer: which products go into the weights of the layers behind, and that they come out."""

import copy

import pytest
import torch
from dialects import DIALECTS, in_dialect
from exactness import (
    COPIES,
    before_and_after,
    captured,
    check,
    check_copies,
    refused,
    shapes_known,
    snapshot,
    traced,
)
from expecttest import assert_expected_inline
from torch import fx, nn
from written_operands import assert_stale_once_written, assert_zeros_are_named

import fxlab
from fxlab import FuseScaleBeforeLayer, MergeLinears, compose

FUSE = FuseScaleBeforeLayer()
X = torch.randn(3, 4)

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Scaled(nn.Module):
    """A function of an input, one trained number for each channel, and the layer that reads the product."""

    def __init__(self, layer=None, function=lambda x, gamma: x * gamma, shape=(4,), *others):
        super().__init__()
        self.layer = nn.Linear(4, 6) if layer is None else copy.deepcopy(layer)
        self.others = nn.ModuleList(others)
        self.gamma = nn.Parameter(torch.rand(shape) + 0.5)
        self.function = function

    def forward(self, x):
        product = self.function(x, self.gamma)
        return self.layer(product), *(layer(product) for layer in self.others)


class Attention(nn.Module):
    """Queries, keys and values of a normalised input, as Llama computes them."""

    def __init__(self, bias=False):
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(8) + 0.5)
        self.query, self.key = nn.Linear(8, 8, bias=bias), nn.Linear(8, 4, bias=bias)
        self.value, self.out = nn.Linear(8, 8, bias=bias), nn.Linear(8, 8)

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        x = self.gamma * x
        return self.query(x), self.key(x), self.out(self.value(x) * 2)


def test_the_graph_before_and_after():
    assert_expected_inline(
        before_and_after(FUSE, shapes_known(Attention(bias=True), torch.randn(2, 3, 8))),
        """\
x = input
pow_1 = x.pow(2)
mean = pow_1.mean(-1, keepdim=True)
add = add(mean, 1e-06)
rsqrt = rsqrt(add)
mul = mul(x, rsqrt)
gamma = self.gamma
mul_1 = mul(gamma, mul)
query = self.query(mul_1)  # Linear: weight (8, 8), bias (8,)
key = self.key(mul_1)  # Linear: weight (4, 8), bias (4,)
value = self.value(mul_1)  # Linear: weight (8, 8), bias (8,)
mul_2 = mul(value, 2)
out = self.out(mul_2)  # Linear: weight (8, 8), bias (8,)
return (query, key, out)

becomes

x = input
pow_1 = x.pow(2)
mean = pow_1.mean(-1, keepdim=True)
add = add(mean, 1e-06)
rsqrt = rsqrt(add)
mul = mul(x, rsqrt)
query = self.query(mul)  # Linear: weight (8, 8), bias (8,)
key = self.key(mul)  # Linear: weight (4, 8), bias (4,)
value = self.value(mul)  # Linear: weight (8, 8), bias (8,)
out = self.out(value)  # Linear: weight (8, 8), bias (8,)
return (query, key, out)
""",
    )


@pytest.mark.parametrize("source", ["fx", "trace", "export", "decomposed"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_weight_of_a_norm_goes_into_all_layers_that_read_it(source, bias):
    model, x = Attention(bias).eval(), torch.randn(2, 3, 8)
    gm = captured(source, model, x)
    marked = len(FUSE.get_transformed_nodes(FUSE(copy.deepcopy(gm))))
    fused = check(FUSE, model, x, marked=marked, gm=gm, tolerance=1e-5)
    assert not any("gamma" in str(node.target) for node in fused.graph.nodes)
    torch.testing.assert_close(fused.get_parameter("key.weight"), model.key.weight * model.gamma)
    if bias:
        assert fused.get_parameter("key.bias") is model.key.bias


LAYERS = {
    "linear": (nn.Linear(4, 6), (3, 4), (4,)),
    "no bias": (nn.Linear(4, 6, bias=False), (2, 3, 4), (4,)),
    "one for all": (nn.Linear(4, 6), (3, 4), (1,)),
    "conv1d": (nn.Conv1d(4, 6, 2), (2, 4, 5), (4, 1)),
    "padded": (nn.Conv2d(4, 6, 3, padding=1), (2, 4, 5, 5), (4, 1, 1)),
    "reflected": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 5, 5), (1, 4, 1, 1)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (1, 4, 5, 5), (4, 1, 1)),
    "single": (nn.Conv2d(4, 6, 3), (4, 5, 5), (4, 1, 1)),
    "conv3d": (nn.Conv3d(4, 2, 2), (1, 4, 3, 3, 3), (4, 1, 1, 1)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), (1, 4, 5, 5), (4, 1, 1)),
    "transposed groups": (nn.ConvTranspose1d(4, 6, 2, groups=2), (2, 4, 5), (4, 1)),
}


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        (name, dialect)
        for name in LAYERS
        for dialect in (DIALECTS[:1] if name in ("reflected", "single") else DIALECTS)
    ],
)
@pytest.mark.parametrize("function", [lambda x, gamma: gamma * x, lambda x, gamma: x / gamma])
def test_numbers_of_input_channels_go_into_the_weights_and_come_out(name, function, dialect):
    layer, size, shape = LAYERS[name]
    model, x = Scaled(layer, function, shape), torch.randn(size)
    gm = in_dialect(shapes_known(model, x), dialect)
    gm = check(FUSE, model, x, marked=1, gm=gm, tolerance=1e-5)
    assert not FUSE.explain(gm).size


VIEWS = {
    "rows": (nn.Linear(4, 6), (2, 3, 4), (4,), lambda x, g: (x * g).view(-1, 4)),
    "transposed": (nn.Linear(4, 6), (2, 4, 3), (4, 1), lambda x, g: (x * g).transpose(1, 2)),
    "image": (nn.Conv2d(4, 6, 1), (2, 3, 3, 4), (4,), lambda x, g: (x * g).permute(0, 3, 1, 2)),
    "number": (nn.Linear(4, 6), (2, 2, 2), (1,), lambda x, g: (x * 0.3).reshape(2, 4)),
    "shown": (nn.Conv1d(4, 6, 1), (2, 4, 3), (4,), lambda x, g: x * g[:, None]),
}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (name, source)
        for name in VIEWS
        for source in ("trace", "export", "decomposed")
        if (name, source) != ("transposed", "decomposed")  # a product of batches, which expands the input
    ],
)
def test_views_may_stand_in_between(name, source):
    layer, size, shape, function = VIEWS[name]
    model, x = Scaled(layer, function, shape).eval(), torch.randn(size)
    gm = captured(source, model, x)
    assert FUSE.explain(gm)["matched"].tolist() == [True]
    marked = len(FUSE.get_transformed_nodes(FUSE(copy.deepcopy(gm))))
    fused = check(FUSE, model, x, marked=marked, gm=gm, tolerance=1e-5)
    assert not any(
        getattr(node.target, "__name__", "") in ("mul", "mul.Tensor") for node in fused.graph.nodes
    )


def test_powers_of_two_keep_every_bit():
    model = Scaled(None, lambda x, gamma: x * 0.125)
    check(FUSE, model, X, marked=1, gm=shapes_known(model, X), tolerance=0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_any_precision_are_scaled(dtype):
    model, x = Scaled().to(dtype), X.to(dtype)
    assert check(FUSE, model, x, marked=1, gm=shapes_known(model, x)).layer.weight.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_computes_in_the_same_dtypes(dtype):
    model, x = Scaled(), X.to(dtype)
    gm = FUSE(shapes_known(model, X))
    with torch.autocast("cpu", torch.bfloat16):
        (expected,), (actual,) = model(x), gm(x)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_weights_that_were_trained_are_divided_by_the_numbers_as_they_are_then(dialect):
    model = Scaled(None, lambda x, gamma: x / gamma, (4,), nn.Linear(4, 3))
    gm = in_dialect(shapes_known(model, X), dialect)
    weights = [gm.layer.weight, gm.get_submodule("others.0").weight]
    FUSE(gm)
    with torch.no_grad():
        for place, parameter in enumerate(gm.parameters()):
            parameter.mul_(1.5 + place)
    expected = gm(X)
    torch.testing.assert_close(FUSE(gm, reverse=True)(X), expected)
    assert gm.layer.weight is weights[0]
    assert gm.get_submodule("others.0").weight is weights[1]


def test_weights_that_zeros_cannot_divide_are_named():
    assert_zeros_are_named(FUSE, shapes_known(Scaled(), X))


def test_a_write_into_the_numbers_makes_the_layer_stale():
    model = Scaled()
    assert_stale_once_written(FUSE, shapes_known(model, X), model)


def test_numbers_go_into_the_weights_of_a_body():
    class Either(Scaled):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.layer(x * self.gamma), lambda x: x.cos(), (x,))

    model, x = Either(nn.Linear(4, 4)), torch.rand(3, 4)
    gm = fxlab.from_exported(torch.export.export(model, (x,)))
    assert FUSE.explain(gm)["matched"].tolist() == [True]
    before = gm(x)
    torch.testing.assert_close(FUSE(gm)(x), before)
    assert torch.equal(FUSE(gm, reverse=True)(x), model(x))


def test_merged_linears_are_scaled_and_scaled_ones_merged():
    model, x = Attention().eval(), torch.randn(2, 3, 8)
    for order in ([FUSE, MergeLinears()], [MergeLinears(), FUSE]):
        gm = fxlab.symbolic_trace(model, (x,))
        before = snapshot(gm)
        both = compose(*order)
        torch.testing.assert_close(both(gm)(x), model(x))
        assert all(each.get_transformed_nodes(gm) for each in order)
        both(gm, reverse=True)
        assert snapshot(gm).nodes == before.nodes


@pytest.mark.parametrize("kind", COPIES)
def test_copies_can_be_reversed(kind):
    check_copies(FUSE, shapes_known(Scaled(), X), COPIES[kind], ["layer"])


def written_between(x, gamma):
    product = x * gamma
    x.add_(1)
    return product


REFUSED = {
    "another shape": (Scaled(nn.Linear(4, 6)), torch.randn(3, 1), "not-per-channel"),
    "other places": (Scaled(nn.Linear(4, 6), shape=(4, 1)), torch.randn(2, 4, 4), "not-per-channel"),
    "more dimensions": (Scaled(nn.Linear(4, 6), shape=(1, 1, 1, 4)), X, "not-per-channel"),
    "moved": (
        Scaled(nn.Linear(4, 6), lambda x, gamma: (x * gamma).transpose(0, 1)),
        torch.randn(4, 4),
        "not-per-channel",
    ),
    "whole numbers": (Scaled(nn.Linear(4, 6)), torch.arange(4).reshape(1, 4), "mixed-dtypes"),
    "other precision": (Scaled(nn.Linear(4, 6)), X.bfloat16(), "mixed-dtypes"),
    "written": (Scaled(nn.Linear(4, 6), lambda x, gamma: (x * gamma).add_(1)), X, "other-users"),
    "value written": (Scaled(nn.Linear(4, 6), written_between), X, "written-in-between"),
    "zero": (Scaled(nn.Linear(4, 6), lambda x, gamma: x * 0.0), X, "scale"),
    "not a number": (Scaled(nn.Linear(4, 6), lambda x, gamma: x * float("nan")), X, "scale"),
    "large": (Scaled(nn.Linear(4, 6), lambda x, gamma: x * 1e30), X, "scale"),
    "small": (Scaled(nn.Linear(4, 6), lambda x, gamma: x * 1e-38), X, "not-normal"),
}


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "written"])
def test_what_would_change_the_function_is_refused(name):
    model, x, code = REFUSED[name]
    assert refused(FUSE, shapes_known(model, x.clone())) == code


def test_unknown_shapes_are_refused():
    assert refused(FUSE, traced(Scaled())) == "unknown-shape"


def test_frozen_layers_keep_a_trained_factor_apart():
    model = Scaled()
    model.layer.requires_grad_(False)
    assert refused(FUSE, shapes_known(model, X)) == "only-operand-trained"


class Rounded(Scaled):
    def forward(self, x):
        return self.layer(x * self.gamma).long()


class Elsewhere(Scaled):
    def forward(self, x):
        product = x * self.gamma
        return self.layer(product), product


class ViewElsewhere(Scaled):
    def forward(self, x):
        product = x * self.gamma
        return self.layer(product), product.view(-1)


class Twice(Scaled):
    def forward(self, x):
        return self.layer(x * self.gamma) + self.layer(x)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (Rounded(), "rounded-later"),
        (Elsewhere(), "other-users"),
        (ViewElsewhere(), "other-users"),
        (Twice(), "called-repeatedly"),
    ],
)
def test_other_readers_keep_the_product(model, code):
    assert refused(FUSE, shapes_known(model, X)) == code


@pytest.mark.parametrize(
    "function", [lambda x, gamma: x * x, lambda x, gamma: 2 / x, lambda x, gamma: (x * gamma).relu()]
)
def test_other_arithmetic_is_no_candidate(function):
    assert FUSE.candidates(shapes_known(Scaled(None, function), X)) == []


def test_the_size_that_a_transposed_convolution_is_told_stays():
    class Sized(Scaled):
        def forward(self, x):
            return self.layer(x * self.gamma, output_size=[10, 10])

    model, x = Sized(nn.ConvTranspose2d(4, 2, 3, stride=2), shape=(4, 1, 1)), torch.randn(1, 4, 4, 4)
    check(FUSE, model, x, marked=1, gm=shapes_known(model, x), tolerance=1e-5)


def test_gradients_are_those_of_the_product():
    model, x = Scaled(), X.clone().requires_grad_()
    (output,) = model(x)
    (expected,) = torch.autograd.grad(output.square().sum(), x)
    (output,) = FUSE(shapes_known(model, X))(x)
    (actual,) = torch.autograd.grad(output.square().sum(), x)
    torch.testing.assert_close(actual, expected)


def test_a_graph_that_fx_traced_reads_the_value_itself():
    gm = FUSE(shapes_known(Scaled(), X))
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "output"]
    assert isinstance(gm, fx.GraphModule)
