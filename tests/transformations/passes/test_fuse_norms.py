"""FuseRMSNorm and FuseLayerNorm: which arithmetic is a norm, and that nothing else is taken for one."""

import copy

import pytest
import torch
from exactness import assert_close, captured, check, refused, shapes_known
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

import fxlab
from fxlab import FuseLayerNorm, FuseRMSNorm

RMS, LAYER = FuseRMSNorm(), FuseLayerNorm()
ATEN = torch.ops.aten

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Norm(nn.Module):
    """Whatever function is given, with a weight and a bias to use in it."""

    def __init__(self, function, dtype=torch.float32):
        super().__init__()
        self.function = function
        self.dtype = dtype
        self.weight, self.bias = (nn.Parameter(torch.randn(8, dtype=dtype)) for _ in range(2))

    def forward(self, x):
        return self.function(self, x)


def llama(m, x):
    dtype = x.dtype
    x = x.to(torch.float32)
    variance = x.pow(2).mean(-1, keepdim=True)
    return m.weight * (x * torch.rsqrt(variance + 1e-6)).to(dtype)


def t5(m, x):
    variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
    x = x * torch.rsqrt(variance + 1e-6)
    return m.weight * (x if m.dtype == torch.float32 else x.to(m.dtype))


def gemma(m, x):
    y = x.float() * torch.pow(x.float().square().mean(-1, keepdim=True) + 1e-6, -0.5)
    return (y * (1.0 + m.weight.float())).type_as(x)


def divided(m, x):
    return x / torch.sqrt(1e-6 + torch.mean(x * x, dim=-1, keepdim=True)) * m.weight


def textbook(m, x):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return m.weight * ((x - mean) / torch.sqrt(variance + 1e-5)) + m.bias


def by_var(m, x):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return m.bias + (x - mean) * (variance + 1e-5).rsqrt() * m.weight


def by_unbiased(m, x):
    return (x - x.mean(-1, True)) * (1 / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()) + m.weight


def without_bias(m, x):
    y = x - x.mean(2, True)
    return y * torch.reciprocal(torch.sqrt(y.square().mean(2, True) + 1e-5)) * m.weight


RMS_NORMS = [llama, t5, gemma, divided]
LAYER_NORMS = [textbook, by_var, by_unbiased, without_bias]


SOURCES = ["fx", "trace", pytest.param("export", marks=pytest.mark.weekly), "decomposed"]


@pytest.mark.often(4)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("pass_", "function"), [*((RMS, f) for f in RMS_NORMS), *((LAYER, f) for f in LAYER_NORMS)]
)
def test_a_norm_becomes_one_call_and_is_written_out_again(pass_, function, source):
    model, x = Norm(function).eval(), torch.randn(2, 3, 8)
    gm = check(pass_, model, x, marked=1, gm=captured(source, model, x))
    kernels = [node for node in gm.graph.nodes if "norm" in str(node.target)]
    assert len(kernels) == 1
    left = {node.name.rstrip("_0123456789") for node in gm.graph.nodes}
    assert left.isdisjoint(
        {"pow", "square", "mean", "rsqrt", "sqrt", "var", "var_mean", "truediv", "reciprocal"}
    )


@pytest.mark.each_value
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", [llama, t5])
def test_half_precision_is_rounded_once(function, source):
    model, x = Norm(function, torch.bfloat16).eval(), torch.randn(2, 3, 8).bfloat16()
    gm = check(RMS, model, x, marked=1, gm=captured(source, model, x), tolerance=0.02)
    exact = copy.deepcopy(model).double()(x.double())
    assert (gm(x) - exact).abs().max() <= 1.5 * (model(x) - exact).abs().max()


def test_layer_norms_that_a_compiler_has_taken_apart_are_found():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).eval(), torch.randn(2, 3, 8)
    nn.init.normal_(model[1].weight), nn.init.normal_(model[1].bias)
    table = torch._decomp.get_decompositions([ATEN.native_layer_norm])
    table.update(torch.export.default_decompositions())
    gm = fxlab.from_exported(torch.export.export(model, (x,)).run_decompositions(table))
    assert not gm.graph.find_nodes(op="call_function", target=ATEN.native_layer_norm.default)
    expected = gm(x)
    assert_close(LAYER(gm)(x), expected)
    assert len(LAYER.get_transformed_nodes(gm)) == 1
    assert_close(LAYER(gm, reverse=True)(x), expected, 0.0)


def test_sizes_stay_open():
    model, x = Norm(llama).eval(), torch.randn(2, 3, 8)
    batch = torch.export.Dim("batch", max=64)
    gm = fxlab.from_exported(torch.export.export(model, (x,), dynamic_shapes=({0: batch},)))
    assert len(RMS.get_transformed_nodes(RMS(gm))) == 1
    y = torch.randn(5, 3, 8)
    assert_close(gm(y), model(y))


def test_gradients_are_those_of_the_arithmetic():
    model, x = Norm(textbook), torch.randn(2, 8)
    gm = LAYER(shapes_known(copy.deepcopy(model), x))
    for each in (model, gm):
        each(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gm.get_parameter(name).grad, parameter.grad, rtol=1e-4, atol=1e-4)


# What is left alone


def product(x, dim=-1, eps=1e-6, power=2):
    return x * torch.rsqrt(x.pow(power).mean(dim, keepdim=True) + eps)


def read_twice(m, x):
    y = x.pow(2)
    return x * torch.rsqrt(y.mean(-1, keepdim=True) + 1e-6) + y


def of_another(m, x):
    return x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + 1e-6)


def of_another_mean(m, x):
    y = x - (x + 1).mean(-1, keepdim=True)
    return y / (x.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()


def root_of_sum(m, x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def unbiased(m, x):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-6).sqrt()


def shifted_deviation(m, x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, unbiased=False, keepdim=True) + 1e-6)


def of_a_product(m, x):
    return x * torch.rsqrt((x * m.weight).mean(-1, keepdim=True) + 1e-6)


def corrected(m, x):
    variance, mean = torch.var_mean(x, -1, correction=1, keepdim=True)
    return (x - mean) * (variance + 1e-6).rsqrt()


def inverted(m, x):
    return x * torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def in_another_order(m, x):
    return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) / x


@pytest.mark.parametrize(
    "function",
    [
        *(
            of_a_product,
            corrected,
            of_another,
            of_another_mean,
            root_of_sum,
            unbiased,
            shifted_deviation,
            inverted,
            in_another_order,
        ),
        lambda m, x: product(x, dim=0),
        lambda m, x: product(x, dim=(-1, -2)),
        lambda m, x: product(x, power=4),
        lambda m, x: product(x, eps=m.bias),
        lambda m, x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda m, x: x * torch.rsqrt(torch.addcmul(x, x, x).mean(-1, keepdim=True) + 1e-6),
    ],
)
def test_other_arithmetic_is_no_norm(function):
    gm = shapes_known(Norm(function), torch.rand(3, 8, 8))
    assert RMS.candidates(gm) == LAYER.candidates(gm) == []


def write_between(m, x):
    x = x + 0
    root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    x.add_(1)
    return x * root


def half_squares(m, x):
    return x * torch.rsqrt(x.bfloat16().pow(2).mean(-1, keepdim=True) + 1e-6)


def rounded_later(m, x):
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).long()


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (read_twice, "other-users"),
        (write_between, "written-in-between"),
        (half_squares, "mixed-dtypes"),
        (rounded_later, "rounded-later"),
        (lambda m, x: product(x.double()).mul(m.weight).long(), "rounded-later"),
    ],
)
def test_what_the_function_would_do_otherwise_is_refused(function, code):
    gm = shapes_known(Norm(function), torch.randn(3, 3, 8))
    assert refused(RMS, gm) == code


@pytest.mark.parametrize("source", ["fx", "export"])
def test_a_norm_of_a_transposed_value_stays_where_it_is_returned(source):
    gm = captured(source, Norm(lambda m, x: product(x.transpose(0, 1))), torch.randn(2, 3, 8))
    assert refused(RMS, gm) == "other-layout"


def test_shapes_and_dtypes_must_be_known():
    gm = fx.symbolic_trace(Norm(llama))
    assert refused(RMS, gm) == "unknown-shape"
    ShapeProp(gm).propagate(torch.randn(2, 8))
    for node in gm.graph.nodes:
        if node.name == "rsqrt":
            del node.meta["tensor_meta"]
    assert refused(RMS, gm) == "unknown-dtype"


def test_a_last_size_that_is_open_stays():
    model, x = Norm(lambda m, x: product(x)), torch.randn(2, 8)
    size = torch.export.Dim("size", max=64)
    gm = fxlab.from_exported(torch.export.export(model, (x,), dynamic_shapes=({1: size},)))
    assert refused(RMS, gm) == "open-size"


def test_a_weight_of_another_dtype_stays_outside():
    model, x = Norm(llama), torch.randn(2, 8).bfloat16()
    gm = check(RMS, model, x, marked=1, gm=shapes_known(model, x), tolerance=0.02)
    (norm,) = gm.graph.find_nodes(op="call_function", target=F.rms_norm)
    assert [str(norm.args[0]), norm.args[2]] == ["to", None]


@pytest.mark.parametrize(("pass_", "function"), [(RMS, llama), (LAYER, textbook)])
def test_under_autocast_dtypes_are_those_of_the_arithmetic_or_the_graph_refuses(pass_, function):
    class Behind(Norm):
        def forward(self, x):
            return super().forward(x @ torch.ones(8, 8))

    model, x = Behind(function), torch.randn(2, 8)
    gm = pass_(shapes_known(model, x))
    with torch.autocast("cpu", torch.bfloat16):
        if function is textbook:
            with pytest.raises(AssertionError, match="FuseLayerNorm"):
                gm(x)
        else:
            assert_close(gm(x), model(x), 0.02)
    assert_close(gm(x), model(x))
