"""Automatic mixed precision: inside a model, around it, and around a pass."""

import copy

import pytest
import torch
from exactness import assert_close, assert_is, reasons, snapshot, traced
from random_modules import ReadsBuffers
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

import fxlab
from fxlab import EliminateCommonSubexpressions, FoldConstants, FuseAttention, MergeLinears, RemoveDeadCode
from fxlab.transformations import available

DTYPES = [torch.bfloat16, torch.float16]


def autocast(dtype=torch.bfloat16):
    return torch.autocast("cpu", dtype)


class Tables(nn.Module):
    """A frozen weight and a buffer, and whatever function is given."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.frozen = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        self.register_buffer("buffer", torch.randn(4, 4))

    def forward(self, x):
        return self.function(self, x)


def with_buffers(model):
    return fx.GraphModule(model, ReadsBuffers().trace(model))


def under(dtype, module, *inputs):
    with autocast(dtype):
        return module(*inputs)


def test_a_pass_that_is_applied_under_autocast_does_the_same_as_elsewhere():
    model, x = Tables(lambda self, x: x @ (self.frozen @ self.buffer)), torch.randn(3, 4)
    gm = with_buffers(model)
    with autocast():
        FoldConstants()(gm)
    assert torch.equal(gm(x), model(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x @ (self.frozen @ self.buffer),
        lambda self, x: nn.functional.linear(x, self.frozen @ self.buffer.t()),
        lambda self, x: x + (self.frozen * 2).t()[0],
    ],
)
def test_what_was_folded_computes_the_same_under_autocast(function, dtype):
    model, x = Tables(function), torch.randn(3, 4)
    gm = FoldConstants()(with_buffers(model))
    assert len(FoldConstants().get_transformed_nodes(gm)) == 1
    actual, expected = under(dtype, gm, x), under(dtype, model, x)
    assert_close(actual, expected, 8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x.to(torch.bfloat16)[:, :4] + self.frozen @ self.buffer,
        lambda self, x: torch.index_select(self.frozen @ self.buffer, 0, x.argmax(-1)),
        lambda self, x: (x @ (self.frozen @ self.buffer), (self.frozen @ self.buffer) + x.bfloat16()),
    ],
)
def test_what_is_of_another_dtype_under_autocast_is_not_folded(function):
    model, x = Tables(function), torch.randn(4, 4)
    gm = with_buffers(model)
    expected = under(torch.bfloat16, model, x)
    assert " ".join(reasons(FoldConstants(), gm).values()) == "autocast-dtype"
    assert_close(under(torch.bfloat16, FoldConstants()(gm), x), expected)


class Regions(nn.Module):
    """The same inside of a region of autocast and outside."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
        self.frozen = nn.Parameter(torch.randn(8, 8), requires_grad=False)

    def forward(self, x):
        outside = x @ x.transpose(-1, -2)
        table = self.frozen @ self.frozen
        with autocast():
            inside = x @ x.transpose(-1, -2)
            low_table = self.frozen @ self.frozen
            low = self.b(x), self.c(x)
            attention = inside.softmax(-1) @ x
        return outside, inside, self.a(x) @ table, x @ low_table.float(), *low, attention


@pytest.fixture(scope="module")
def regions():
    model, x = Regions(), torch.randn(2, 8, 8)
    return fxlab.symbolic_trace(model, (x,)), x, model(x)


@pytest.mark.parametrize("pass_", [cls() for cls in available()], ids=lambda pass_: pass_.name)
def test_regions_of_autocast_stay_what_they_are(pass_, regions):
    gm, x, expected = regions
    gm = copy.deepcopy(gm)
    before = snapshot(gm)
    assert_close(pass_(gm)(x), expected)
    for actual, output in zip(gm(x), expected, strict=True):
        assert actual.dtype == output.dtype
    pass_(gm, reverse=True)
    assert_is(gm, before)


def test_what_autocast_computes_in_another_dtype_is_no_repetition(regions):
    gm = copy.deepcopy(regions[0])
    products = [node for node in gm.graph.nodes if "matmul" in node.name]
    EliminateCommonSubexpressions()(RemoveDeadCode()(gm))
    assert [node for node in gm.graph.nodes if "matmul" in node.name] == products


class Network(nn.Module):
    """Something for most passes to do."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))
        self.features, self.drop = nn.BatchNorm1d(4), nn.Dropout()
        nn.init.normal_(self.norm.running_mean)
        nn.init.normal_(self.features.running_mean)

    def forward(self, x):
        rows = self.norm(self.conv(x)).sum((-1, -2))
        rows = self.drop(self.a(rows)) / 3 + self.b(rows) + self.b(rows).relu()
        q = rows.view(1, 1, -1, 4)
        return self.features(self.c(rows)) + ((q @ q.transpose(-1, -2) / 2).softmax(-1) @ q)[0, 0]


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pass_", [cls() for cls in available()], ids=lambda pass_: pass_.name)
def test_a_transformed_module_computes_the_same_under_autocast(pass_, dtype):
    model, x = Network().eval(), torch.randn(3, 2, 2, 2)
    gm = traced(model)
    ShapeProp(gm).propagate(x)
    expected = under(dtype, gm, x)
    assert_close(under(dtype, pass_(gm), x), expected, 32 * torch.finfo(dtype).eps)


class MaskedAttention(nn.Module):
    """Attention with a mask that excludes all keys for one of the queries."""

    def __init__(self, number, dtype=torch.float32):
        super().__init__()
        mask = torch.zeros(1, 1, 5, 5, dtype=dtype)
        mask[..., 3:] = mask[:, :, 0] = number
        self.register_buffer("mask", mask)

    def forward(self, q, k, v):
        return (q @ k.transpose(-1, -2) / 8 + self.mask).softmax(-1) @ v


def fused(model, inputs):
    gm = with_buffers(model)
    ShapeProp(gm).propagate(*inputs)
    assert len(FuseAttention().get_transformed_nodes(FuseAttention()(gm))) == 1
    return gm


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_with_a_mask_that_autocast_makes_infinite_refuses_autocast(dtype):
    model, inputs = MaskedAttention(torch.finfo(torch.float32).min), torch.randn(3, 1, 2, 5, 64)
    gm = fused(model, inputs)
    assert_close(gm(*inputs), model(*inputs))
    for module in (gm, copy.deepcopy(gm)):
        with pytest.raises(AssertionError, match="cannot be run under autocast"):
            under(dtype, module, *inputs)
    FuseAttention()(gm, reverse=True)
    assert_close(under(dtype, gm, *inputs), under(dtype, model, *inputs), 0.0)


def test_autocast_leaves_double_precision_alone():
    model = MaskedAttention(torch.finfo(torch.float64).min, torch.float64)
    inputs = torch.randn(3, 1, 2, 5, 64, dtype=torch.float64)
    gm = fused(model, inputs)
    assert_close(under(torch.bfloat16, gm, *inputs), under(torch.bfloat16, model, *inputs))


def test_linears_before_and_after_a_switch_of_autocast_are_not_merged():
    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            first = self.a(x)
            mode = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, False)
            second, third = self.b(x), self.c(x)
            torch.amp.autocast_mode._exit_autocast(mode)
            return first, second, third

    model, x = Switched(), torch.randn(2, 4)
    graph = fx.Graph()
    value = graph.placeholder("x")
    first = graph.call_module("a", (value,))
    mode = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, False))
    second, third = (graph.call_module(name, (value,)) for name in "bc")
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (mode,))
    graph.output((first, second, third))
    gm = fx.GraphModule(model, graph)
    MergeLinears()(gm)
    assert [node.name for node in MergeLinears().get_transformed_nodes(gm)] == ["b_c_merged"]
    assert_close(gm(x), model(x), 0.02)
