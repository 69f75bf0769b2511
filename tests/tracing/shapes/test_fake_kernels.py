"""Calls that torch cannot make on fake tensors, such as the products that experts are made of."""

import pytest
import torch
import transformers
from agreement import assert_agree
from torch import nn
from torch.nn import functional as F

from fxlab import TraceError, example_inputs, symbolic_trace

SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


class Grouped(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(groups, 8, 16))

    def forward(self, x):
        groups = len(self.weight)
        ends = (torch.arange(1, groups + 1) * x.shape[0] // groups).int()
        return F.grouped_mm(x, self.weight, offs=ends).relu()


def test_groups_of_rows_are_followed_at_any_number_of_rows():
    model = Grouped(3)
    traced = symbolic_trace(model, (torch.randn(10, 8),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, (torch.randn(17, 8),))


@pytest.mark.parametrize("shapes", [((3, 5, 8), (3, 8, 16)), ((6, 8), (3, 8, 16)), ((4, 8), (8, 12))])
def test_shapes_are_those_that_torch_computes(shapes):
    a, b = map(torch.randn, shapes)
    ends = {
        (3, 3): None,
        (2, 3): torch.tensor([2, 4, 6], dtype=torch.int32),
        (2, 2): torch.tensor([4, 8], dtype=torch.int32),
    }[(a.dim(), b.dim())]

    class Product(nn.Module):
        def forward(self, a, b):
            return F.grouped_mm(a, b, offs=ends)

    traced = symbolic_trace(Product(), (a, b), dynamic=False)
    assert traced.meta["trace"].rung == "fixed shapes"
    (node,) = (node for node in traced.graph.nodes if "grouped_mm" in str(node.target))
    assert node.meta["val"].shape == Product()(a, b).shape


LAYERS = {
    "strided": (nn.Conv2d(4, 6, 3, 2, 1), (2, 4, 9, 8)),
    "grouped and dilated": (nn.Conv2d(4, 6, 3, dilation=2, groups=2), (3, 4, 9, 7)),
    "of one pixel": (nn.Conv2d(4, 4, 1, bias=False), (2, 4, 1, 1)),
    "of one channel": (nn.Conv2d(1, 1, 1), (2, 1, 5, 5)),
    "of a signal": (nn.Conv1d(4, 5, 3, 2), (2, 4, 9)),
    "of a volume": (nn.Conv3d(2, 3, 3, 2, 1), (2, 2, 5, 6, 7)),
    "padded to the same size": (nn.Conv2d(4, 4, 3, padding="same"), (2, 4, 5, 5)),
    "norm": (nn.BatchNorm2d(4).eval(), (2, 4, 5, 6)),
    "norm of rows": (nn.BatchNorm1d(4).eval(), (3, 4)),
    "norm in training": (nn.BatchNorm2d(4), (2, 4, 5, 6)),
}


@pytest.mark.often(4)
@pytest.mark.slow
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_convolutions_and_norms_have_the_shapes_and_strides_that_torch_computes(name, channels_last):
    layer, shape = LAYERS[name]
    given = torch.randn(shape)
    if channels_last and len(shape) == 4:
        given = given.contiguous(memory_format=torch.channels_last)
    expected = layer(given)
    for dynamic in (False, True):
        graph = symbolic_trace(nn.Sequential(layer), given, dynamic=dynamic, check=False).graph
        (made,) = (node.meta["val"] for node in graph.find_nodes(op="call_module"))
        sizes = [int(size) for size in (*made.shape, *made.stride())]
        assert sizes == [*expected.shape, *expected.stride()]


def test_a_kernel_that_does_not_fit_is_an_error_in_the_words_of_torch():
    with pytest.raises(TraceError, match=r"[Kk]ernel size"):
        symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 7)), torch.randn(2, 3, 5, 5))


def test_the_number_of_steps_is_followed():
    class Spaced(nn.Module):
        def forward(self, x):
            return x * torch.linspace(0.5, x.shape[1] - 0.5, x.shape[1], device=x.device)

    traced = symbolic_trace(Spaced(), (torch.randn(2, 6),), check=False)
    assert_agree(traced, Spaced(), (torch.randn(3, 11),))


def test_random_numbers_by_a_generator_that_is_none_are_drawn_at_any_size():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn((x.shape[0], 1), generator=None, dtype=x.dtype, device=x.device)

    traced = symbolic_trace(Noisy(), (torch.randn(2, 6),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, Noisy(), (torch.randn(3, 4),))


@pytest.mark.often(1)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_products_have_the_shapes_dtypes_and_gradients_that_torch_computes(attention):
    config = transformers.LlamaConfig(**SIZES)
    config._attn_implementation = attention
    model = transformers.LlamaModel(config).eval()
    traced = symbolic_trace(model, dynamic=False)
    expected = {}

    class Compares(torch.fx.Interpreter):
        def run_node(self, node):
            expected[node] = super().run_node(node)
            return expected[node]

    inputs = example_inputs(model)
    Compares(traced).run(*(inputs[node.target] for node in traced.graph.find_nodes(op="placeholder")))
    tensors = [node for node, value in expected.items() if isinstance(value, torch.Tensor)]
    assert len(tensors) > 50
    for node in tensors:
        val = node.meta["val"]
        assert (val.shape, val.dtype) == (expected[node].shape, expected[node].dtype), node.name


@pytest.mark.slow
def test_a_mixture_of_experts_follows_its_inputs():
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    model = transformers.MixtralModel(config).eval()
    traced = symbolic_trace(model)
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, example_inputs(model, batch_size=3, sequence_length=7))


class Adaptive(nn.Module):
    def forward(self, x):
        return F.adaptive_max_pool2d(x[:, None], (2, None))


POOLS = nn.MaxPool1d(3), nn.MaxPool1d(4, 2, 1), nn.MaxPool1d(2, 1, 0, 3), Adaptive()


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_pooling_follows_the_length(pool):
    model = nn.Sequential(nn.LeakyReLU(2.0), pool)
    traced = symbolic_trace(model, (torch.randn(2, 3, 12),))
    report = traced.meta["trace"]
    assert report.rung == "dynamic shapes"
    assert not report.of_kind("fixed size")
    for length in (7, 12, 25):
        assert_agree(traced, model, (torch.randn(4, 3, length),))
