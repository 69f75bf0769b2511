"""A view of a call: the module that it names computes what the call does."""

import operator

import pytest
import torch
from dialects import DIALECTS, in_dialect
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional as F

from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views.batch_norm import as_batch_norm
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.linear import as_linear

ATEN = torch.ops.aten
LAYERS = {
    "linear": (nn.Linear(4, 6), (3, 4)),
    "linear without a bias": (nn.Linear(4, 6, bias=False), (3, 4)),
    "linear of a sequence": (nn.Linear(4, 6), (2, 3, 4)),
    "conv 1d": (nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 9)),
    "conv 2d": (nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), groups=2, bias=False), (2, 4, 9, 9)),
    "conv 3d": (nn.Conv3d(4, 6, 2, dilation=2), (1, 4, 4, 4, 4)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (1, 4, 4, 4)),
    "batch norm 1d": (nn.BatchNorm1d(4), (3, 4)),
    "batch norm 2d": (nn.BatchNorm2d(4, eps=0.3, affine=False), (2, 4, 3, 3)),
    "batch norm 3d": (nn.BatchNorm3d(4), (2, 4, 2, 2, 2)),
}


def written(module: nn.Module, x: torch.Tensor, dialect: str) -> fx.GraphModule:
    gm = fx.symbolic_trace(nn.Sequential(module).eval())
    ShapeProp(gm).propagate(x)
    return in_dialect(gm, dialect)


def layer_of(gm: fx.GraphModule):
    facts = GraphFacts(gm)
    views = [
        view(node, facts) for node in gm.graph.nodes for view in (as_linear, as_convolution, as_batch_norm)
    ]
    (layer,) = filter(None, views)
    return layer


@pytest.mark.often(16)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_view_computes_what_the_call_does(name, dialect):
    module, shape = LAYERS[name]
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2)
    x = torch.randn(shape)
    gm = written(module, x, dialect)
    layer = layer_of(gm)
    assert type(layer.module) is type(module)
    assert repr(layer.module) == repr(module)
    assert (str(layer.input), layer.path, layer.is_module) == ("input_1", "0", dialect == "modules")
    assert layer.node is gm.graph.output_node().args[0]
    assert all(getattr(layer.module, each) is tensor for each, tensor in module.named_parameters())
    with torch.no_grad():
        torch.testing.assert_close(layer.module(x), gm(x))


def one_call(target, *others, **kwargs) -> fx.GraphModule:
    """Return a graph of one call that is given an input, a weight and a bias, and other arguments."""
    root, graph = nn.Module(), fx.Graph()
    root.inner = nn.Linear(4, 4)
    named = {
        "x": graph.placeholder("x"),
        "w": graph.get_attr("inner.weight"),
        "b": graph.get_attr("inner.bias"),
    }
    named["t"] = graph.call_function(ATEN.permute.default, (named["w"], [1, 0]))
    args = tuple(named.get(other, other) if isinstance(other, str) else other for other in others)
    kwargs = {key: named.get(value, value) for key, value in kwargs.items()}
    graph.output(graph.call_function(target, args, kwargs))
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize(
    "gm",
    [
        one_call(ATEN.addmm.default, "b", "x", "t", beta=2),
        one_call(ATEN.addmm.default, "b", "x", "t", alpha=0.5),
        one_call(ATEN.mm.default, "t", "x"),
        one_call(ATEN.addmm.default, "x", "x", "t"),
        one_call(torch.addmm, mat1="x", mat2="t", input="b"),
        one_call(torch.addmm, "x", "x", "w"),
        one_call(ATEN.mm.default, "w", "x"),
        one_call(ATEN.linear.default, "x", "x"),
        one_call(operator.matmul, "x", "t"),
    ],
    ids=str,
)
def test_a_product_that_is_no_linear_layer_is_none(gm):
    facts = GraphFacts(gm)
    assert not any(as_linear(node, facts) for node in gm.graph.nodes)


COMPUTED = {
    "linear": (F.linear, ATEN.linear.default, (4, 4)),
    "convolution": (F.conv1d, ATEN.conv1d.default, (4, 4, 1)),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("dialect", ["function", "operator"])
@pytest.mark.parametrize("source", ["input", "number"])
def test_a_call_whose_weight_is_no_attribute_is_no_layer_or_says_why(name, dialect, source):
    function, operator_, shape = COMPUTED[name]
    graph = fx.Graph()
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    weight.meta["val"] = torch.ones(shape)
    given = weight if source == "input" else graph.call_function(torch.ones, (shape,))
    graph.output(graph.call_function(function if dialect == "function" else operator_, (x, given)))
    gm = fx.GraphModule(nn.Module(), graph)
    facts = GraphFacts(gm)
    layers = [view(node, facts) for node in gm.graph.nodes for view in (as_linear, as_convolution)]
    found = [layer for layer in layers if layer is not None]
    assert len(found) == (1 if source == "input" else 0)
    assert all(layer.why_not_replaceable(facts, nn.Linear).code == "weight-is-input" for layer in found)


def test_a_convolution_by_a_weight_of_unknown_shape_is_no_layer():
    graph = fx.Graph()
    graph.output(graph.call_function(F.conv2d, (graph.placeholder("x"), graph.placeholder("weight"))))
    facts = GraphFacts(fx.GraphModule(nn.Module(), graph))
    assert [as_convolution(node, facts) for node in graph.nodes] == [None] * 4
