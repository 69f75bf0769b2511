"""FuseActivation: which arithmetic is an activation of torch, and that nothing else is taken for one."""

import copy
import math

import pytest
import torch
from exactness import assert_close, captured, check, refused, shapes_known
from torch import fx, nn

from fxlab import FuseActivation

FUSE = FuseActivation()
ROOT = math.sqrt(2 / math.pi)

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Behind(nn.Module):
    """Whatever function is given, of a linear layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.function(self.linear(x))


def gpt2(x):
    return 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0))))


def fast(x):
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def by_square(x):
    return x / 2 * (((x.square() * 0.044715 + 1) * x * ROOT).tanh() + 1)


def error_function(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def swish(x):
    return x * torch.sigmoid(x)


def swish_method(x):
    return x.sigmoid().mul(x)


FUNCTIONS = {
    gpt2: "gelu",
    fast: "gelu",
    by_square: "gelu",
    error_function: "gelu",
    swish: "silu",
    swish_method: "silu",
}


@pytest.mark.often(6)
@pytest.mark.parametrize(
    ("source", "function"),
    [
        *(("fx", function) for function in FUNCTIONS),
        *((source, function) for source in ("trace", "export", "decomposed") for function in (gpt2, swish)),
    ],
)
def test_an_activation_becomes_one_call_and_is_written_out_again(function, source):
    model, x = Behind(function).eval(), 3 * torch.randn(2, 3, 8)
    gm = check(FUSE, model, x, marked=1, gm=captured(source, model, x))
    (node,) = FUSE.get_transformed_nodes(gm)
    assert FUNCTIONS[function] in str(node.target)
    left = {each.name.rstrip("_0123456789") for each in gm.graph.nodes if each is not node}
    assert left.isdisjoint({"mul", "add", "pow", "tanh", "erf", "sigmoid", "truediv", "neg", "square"})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_half_precision_is_rounded_once(function):
    model, x = Behind(function).bfloat16().eval(), torch.randn(16, 8).bfloat16()
    gm = check(FUSE, model, x, marked=1, gm=shapes_known(model, x), tolerance=0.05)
    exact = copy.deepcopy(model).double()(x.double())
    assert (gm(x) - exact).abs().mean() <= (model(x) - exact).abs().mean()


@pytest.mark.parametrize("function", [gpt2, fast, error_function, swish])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_ends_of_the_range_are_those_of_the_arithmetic(function, dtype):
    limits = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, limits.tiny, limits.max / 4, -limits.max / 4, -torch.inf, torch.nan])
    x = torch.cat([x, torch.tensor([-30.0, -9.0, 9.0, 30.0])]).to(dtype)
    gm = FUSE(shapes_known(function, x))
    assert len(FUSE.get_transformed_nodes(gm)) == 1
    assert_close(gm(x), function(x), 4e-3 if dtype == torch.float16 else None)


def test_silu_that_a_compiler_has_taken_apart_is_found():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.SiLU()).eval(), torch.randn(2, 8)
    gm = captured("decomposed", model, x)
    expected = gm(x)
    assert gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sigmoid.default)
    assert_close(FUSE(gm)(x), expected)
    assert gm.graph.find_nodes(op="call_function", target=torch.ops.aten.silu.default)
    assert_close(FUSE(gm, reverse=True)(x), expected, 0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: x * x * torch.sigmoid(x),
        lambda x: (x + 1) * torch.sigmoid(x),
        lambda x: x / torch.sigmoid(x),
        lambda x: x * torch.sigmoid(input=x + 0.0 * x.sum()),
        lambda x: x[:1] * torch.sigmoid(x[1:]),
        lambda x: 0.5 * x * (1 + torch.erf(x)),
        lambda x: 0.5 * x * (1 - torch.erf(x * math.sqrt(0.5))),
        lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 2)))),
        lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x.clamp(max=3) ** 3))),
    ],
)
def test_other_arithmetic_is_no_activation(function):
    assert FUSE.candidates(shapes_known(function, torch.rand(2, 8))) == []


def read_twice(x):
    y = torch.sigmoid(x)
    return x * y + y


def write_between(x):
    x = x + 0
    y = torch.sigmoid(x)
    x.add_(1)
    return x * y


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (read_twice, "other-users"),
        (write_between, "written-in-between"),
        (lambda x: swish(x).long(), "rounded-later"),
        (lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.0447 * torch.pow(x, 3)))), "constants"),
        (lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))), "constants"),
    ],
)
def test_what_the_function_would_do_otherwise_is_refused(function, code):
    assert refused(FUSE, shapes_known(function, torch.randn(3, 8))) == code


def test_dtypes_must_be_known_and_floating():
    assert refused(FUSE, fx.symbolic_trace(swish)) == "unknown-dtype"
    assert refused(FUSE, shapes_known(swish, torch.ones(3, dtype=torch.int64))) == "mixed-dtypes"
    assert refused(FUSE, shapes_known(swish, torch.ones(3, dtype=torch.complex64))) == "dtype"


def test_under_autocast_dtypes_are_those_of_the_arithmetic_or_the_graph_refuses():
    x = torch.randn(2, 8)
    for function, is_power in ((gpt2, True), (swish, False)):
        model = Behind(function)
        gm = FUSE(shapes_known(model, x))
        with torch.autocast("cpu", torch.bfloat16):
            if is_power:
                with pytest.raises(AssertionError, match="FuseActivation"):
                    gm(x)
            else:
                assert_close(gm(x), model(x), 0.05)
        assert_close(gm(x), model(x))
