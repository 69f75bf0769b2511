"""A model that is given a batch of one, or a text of one token, is traced for others as well."""

import warnings

import pytest
import torch
from agreement import assert_agree, outcome
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import TraceWarning, symbolic_trace
from fxlab.values.tensors import known_number, same_bits


class Residual(nn.Module):
    """A block of a ResNet, with its batch norms."""

    def __init__(self, width):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + x)


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pool, self.scale = nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.scale(self.pool(x)))


class Resizes(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.conv, self.norm, self.mode = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), mode

    def forward(self, x):
        return F.interpolate(self.norm(self.conv(x)), size=x.shape[-2:], mode=self.mode)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Step(nn.Module):
    """A step of decoding, which takes what was computed for the tokens before."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.RMSNorm(16)
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, ids, past):
        hidden = self.norm(self.embed(ids))
        batch, length, _ = hidden.shape
        query = self.query(hidden).view(batch, length, 2, 8).transpose(1, 2)
        key = torch.cat([past, self.key(hidden).view(batch, length, 2, 8).transpose(1, 2)], 2)
        is_causal = length > 1
        attended = F.scaled_dot_product_attention(query, key, key, is_causal=is_causal)
        return attended.transpose(1, 2).reshape(batch, length, 16), key


def resnet():
    stem = nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    head = nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(8, 10)
    return nn.Sequential(*stem, Residual(8), Residual(8), *head)


def mobilenet():
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), SqueezeExcite(8)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), *depthwise)


MODELS = {
    "resnet": (resnet, (3, 32, 32)),
    "mobilenet": (mobilenet, (3, 16, 16)),
    "bilinear": (lambda: Resizes("bilinear"), (3, 8, 8)),
    "area": (lambda: Resizes("area"), (3, 8, 8)),
    "rms norm": (lambda: nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 8)), (2, 3, 4, 8)),
    "batch norm": (
        lambda: nn.Sequential(nn.BatchNorm3d(2), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
        (2, 4, 4, 4),
    ),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)), (4, 5, 6)),
    "squeezed": (lambda: nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(1)), (4, 9)),
    "attention": (Attends, (5, 8)),
    "one channel": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1)), (1, 8, 8)),
}


def assert_right_or_refused(traced, model, *inputs):
    """Assert that a trace gives the model's own bits for inputs, or says what it was made for."""
    (expected, failed), (actual, refused) = outcome(model, *inputs), outcome(traced, *inputs)
    assert str(refused).startswith("traced for") or type(refused) is type(failed)
    assert refused or same_bits(actual, expected)


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        yield


@pytest.mark.often(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_of_one_is_traced_for_every_batch(name):
    make, shape = MODELS[name]
    model = make().eval()
    traced, of_two = (symbolic_trace(model, torch.randn(batch, *shape)) for batch in (1, 2))
    report = traced.meta["trace"]
    assert report.rung == "dynamic shapes"
    assert not report.limits()
    assert not report.of_kind("kept whole")
    for batch in (1, 2, 5):
        assert_agree(traced, model, (torch.randn(batch, *shape),))
    assert [node.target for node in traced.graph.nodes] == [node.target for node in of_two.graph.nodes]


@pytest.mark.parametrize("shape", [(2, 1, 3, 8), (1, 1, 3, 8), (1, 1, 1, 8)])
def test_each_size_of_one_is_followed_by_itself(shape):
    model = nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 8)).eval()
    traced = symbolic_trace(model, torch.randn(shape))
    for other in [(2, 1, 3, 8), (1, 4, 3, 8), (5, 4, 1, 8), (1, 1, 1, 8)]:
        assert_agree(traced, model, (torch.randn(other),))


def test_sizes_in_meta_are_those_of_the_inputs():
    traced = symbolic_trace(resnet().eval(), torch.randn(1, 3, 32, 32))
    shapes = [
        tuple(map(known_number, node.meta["val"].shape)) for node in traced.graph.nodes if node.op != "output"
    ]
    assert {shape[0] for shape in shapes} == {1}
    assert shapes[0] == (1, 3, 32, 32)


def test_batch_norms_are_folded_after_a_batch_of_one():
    model = resnet().eval()
    x = torch.randn(1, 3, 32, 32)
    session = fxlab.Session(model, x, passes=[fxlab.FuseBatchNorm2dInConv2d()])
    session.apply(session.passes[0])
    assert not [m for m in session.graph_module.modules() if isinstance(m, nn.BatchNorm2d)]
    torch.testing.assert_close(session.graph_module(torch.randn(4, 3, 32, 32)).shape, torch.Size([4, 10]))
    assert session.verdict().agrees


def test_channels_are_no_batch():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1)).eval()
    traced = symbolic_trace(model, torch.randn(1, 1, 8, 8))
    with pytest.raises(AssertionError, match=r"input.shape\[1\] = 1 only"):
        traced(torch.randn(1, 2, 8, 8))


def test_channels_last_stay_last():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)).eval()
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    traced = symbolic_trace(model, x)
    conv = next(node for node in traced.graph.nodes if node.op == "call_module")
    assert conv.meta["val"].is_contiguous(memory_format=torch.channels_last)
    assert not conv.meta["val"].is_contiguous()
    assert_agree(traced, model, (torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last),))


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_the_model_decides_on_a_size_of_one_is_held(is_followed):
    class Asks(nn.Module):
        def forward(self, x):
            y = F.adaptive_avg_pool2d(x, 1)
            return y.sum(1) if x.shape[0] == 1 else y * 2

    class AsksOfLength(nn.Module):
        def forward(self, x):
            y = F.adaptive_avg_pool2d(x, 1)
            return y.sum(1) if x.shape[2] == 1 else y * 2

    model, shape = (AsksOfLength(), (1, 3, 1, 5)) if is_followed else (Asks(), (1, 3, 4, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(model, torch.randn(shape))
    assert_agree(traced, model, (torch.randn(shape),))
    dim = 2 if is_followed else 0
    other = torch.randn([2 if index == dim else size for index, size in enumerate(shape)])
    with pytest.raises(AssertionError, match=rf"traced for .*x.shape\[{dim}\]"):
        traced(other)
    if is_followed:
        assert_agree(traced, model, (torch.randn(4, 3, 1, 5),))


def test_a_step_of_one_token_holds_for_every_batch_and_refuses_other_lengths():
    model = Step().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(model, (torch.zeros(1, 1, dtype=torch.long), torch.randn(1, 2, 5, 8)))
    for batch, past in [(1, 5), (3, 7), (2, 1)]:
        assert_agree(traced, model, (torch.randint(50, (batch, 1)), torch.randn(batch, 2, past, 8)))
    with pytest.raises(AssertionError, match=r"traced for .*ids.shape\[1\]"):
        traced(torch.randint(50, (1, 4)), torch.randn(1, 2, 5, 8))


SQUEEZES = {
    "all": lambda x: x.squeeze(),
    "one": lambda x: x.squeeze(0),
    "read": lambda x: x.squeeze(1) * x.squeeze().dim(),
    "pooled": lambda x: F.adaptive_avg_pool1d(x, 1).squeeze(),
    "listed": lambda x: torch.stack([row.sum() for row in x]),
    "number": lambda x: x * int(x.shape[0]),
    "strides": lambda x: x * x.stride(0),
    "contiguous": lambda x: x * 2 if x.transpose(0, 1).is_contiguous() else x * 3,
    "counted": lambda x: x / len(x),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", SQUEEZES)
def test_a_batch_of_one_is_right_or_refused_for_others(name, check):
    class Squeezes(nn.Module):
        def forward(self, x):
            return SQUEEZES[name](x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(Squeezes(), torch.randn(1, 6, 4), check=check)
    assert_agree(traced, Squeezes(), (torch.randn(1, 6, 4),))
    for shape in [(3, 6, 4), (1, 1, 4), (3, 1, 4), (1, 7, 1), (1, 1, 1)]:
        assert_right_or_refused(traced, Squeezes(), torch.randn(shape))


def test_a_model_that_decides_on_data_is_followed_too():
    class Decides(nn.Module):
        def forward(self, x):
            y = F.adaptive_avg_pool2d(x, 1)
            return y if bool((x > -100).all()) else -y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        traced = symbolic_trace(Decides(), torch.randn(1, 3, 4, 4))
    assert traced.meta["trace"].rung == "dynamic shapes, with data"
    assert_agree(traced, Decides(), (torch.randn(3, 3, 4, 4),))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.full((3, 3, 4, 4), -200.0))
