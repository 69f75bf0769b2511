"""Every spelling of a call has one canonical form."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x):
        return self.function(self, x)


X = torch.randn(2, 3, 4)
VIEW = torch.ops.aten.view.default


def graphs(function):
    torch.manual_seed(0)
    model = Apply(function).eval()
    program = torch.export.export(model, (X,))
    yield fxlab.symbolic_trace(model, X)
    yield fxlab.from_exported(program)
    yield fxlab.from_exported(program.run_decompositions())


@functools.cache
def every_form():
    """Return the calls that all functions below return, in each dialect, with the calls inside.

    They are captured together: to export takes longest.
    """
    pairs = [*SPELLINGS, *OTHERS, *((function,) for function in LAYERS)]
    functions = [function for spellings in pairs for function in spellings]
    found = {function: [] for function in functions}
    for graph_module in graphs(lambda m, x: [function(m, x) for function in functions]):
        index = GraphIndex(GraphFacts(graph_module))
        for function, node in zip(functions, graph_module.graph.output_node().args[0], strict=True):
            found[function].append(written(index, node))
    return found


def forms(function):
    return every_form()[function]


def written(index, value):
    if isinstance(value, tuple):
        return tuple(written(index, each) for each in value)
    *_, value = index.calls.seen_through(value)
    term = index.calls.term(value)
    if term is None:
        key = index.key(value)
        return key.name if isinstance(key, torch.fx.Node) else key
    args = {name: written(index, each) for name, each in sorted(term.args.items())}
    if "terms" in args:
        args["terms"] = tuple(sorted(args["terms"], key=str))
    return term.name, str(args)


SPELLINGS = [
    (lambda m, x: F.linear(x, m.linear.weight, m.linear.bias), lambda m, x: m.linear(x)),
    (lambda m, x: x * x.sin(), lambda m, x: torch.mul(x.sin(), x), lambda m, x: torch.sin(x).multiply(x)),
    (lambda m, x: x / 4, lambda m, x: x * 0.25, lambda m, x: torch.true_divide(x, 4)),
    (lambda m, x: x / x.cos().sqrt(), lambda m, x: x * torch.rsqrt(torch.cos(x))),
    (lambda m, x: x**2, lambda m, x: x * x, lambda m, x: x.square(), lambda m, x: torch.pow(x, 2)),
    (lambda m, x: x.transpose(-1, 1), lambda m, x: x.permute(0, 2, 1), lambda m, x: x.mT),
    (lambda m, x: x[..., 2:], lambda m, x: x[:, :, 2:]),
    (lambda m, x: m.linear(x)[..., -2:], lambda m, x: m.linear(x)[:, :, 2:4]),
    (lambda m, x: x[:, 0], lambda m, x: x.select(1, 0)),
    (lambda m, x: m.linear(x)[..., :0], lambda m, x: m.linear(x)[..., :-4]),
    (lambda m, x: x[:, None, :, :], lambda m, x: x.unsqueeze(1), lambda m, x: x[:, None]),
    (lambda m, x: x.softmax(-1), lambda m, x: F.softmax(x, dim=2), lambda m, x: torch.softmax(x, -1)),
    (lambda m, x: x.max(-1, keepdim=True).values, lambda m, x: torch.amax(x, dim=2, keepdim=True)),
    (lambda m, x: x.max(-1).values[..., None], lambda m, x: torch.amax(x, 2).unsqueeze(2)),
    (lambda m, x: x.mean(-1), lambda m, x: torch.mean(x, dim=[2])),
    (lambda m, x: x.sum(2, keepdim=True), lambda m, x: torch.sum(input=x, axis=-1, keepdims=True)),
    (lambda m, x: x.sin().float().contiguous(), lambda m, x: F.dropout(torch.sin(x), training=False)),
    (lambda m, x: x + 2 * x.cos(), lambda m, x: torch.add(x, x.cos(), alpha=2)),
    (lambda m, x: F.layer_norm(x, (4,)), lambda m, x: torch.layer_norm(x, [4])),
    (lambda m, x: x @ m.weight, lambda m, x: torch.matmul(x, m.weight)),
    (lambda m, x: F.max_pool2d(x, 2), lambda m, x: F.max_pool2d(x, (2, 2), [2, 2])),
    (lambda m, x: F.max_pool1d(x, 2), lambda m, x: F.max_pool1d(x, 2, return_indices=True)[0]),
    (lambda m, x: F.adaptive_max_pool2d(x, 2), lambda m, x: F.adaptive_max_pool2d(x, (2, 2), True)[0]),
    (lambda m, x: F.pad(x, (1, 1)), lambda m, x: F.pad(x, [1, 1], "constant", 0.0)),
    (lambda m, x: F.avg_pool1d(x, 2), lambda m, x: F.avg_pool1d(x, (2,), stride=2, padding=0)),
]


@pytest.mark.often(12)
@pytest.mark.parametrize("spellings", SPELLINGS)
def test_spellings_have_one_form_in_every_dialect(spellings):
    for in_one_dialect in zip(*map(forms, spellings), strict=True):
        assert len({*in_one_dialect}) == 1, in_one_dialect
        assert in_one_dialect[0][0] != "x"


LAYERS = {
    lambda m, x: m.linear(x): "linear",
    lambda m, x: F.layer_norm(x, (4,), m.weight[0]): "layer_norm",
    lambda m, x: x @ x.transpose(-1, -2): "matmul",
    lambda m, x: torch.softmax(x, -1): "softmax",
}


@pytest.mark.parametrize(("function", "name"), LAYERS.items())
def test_a_decomposed_layer_is_the_layer(function, name):
    assert [form[0] for form in forms(function)] == [name] * 3


def test_a_product_that_others_read_is_no_part_of_a_layer():
    def product(m, x):
        return torch.addmm(m.linear.bias, x.view(6, 4), m.linear.weight.t())

    def read_twice(m, x):
        both = product(m, x)
        return both.view(2, 3, 4) * both.sum()

    for function, is_layer in ((lambda m, x: product(m, x).view(2, 3, 4) * 2, True), (read_twice, False)):
        *_, graph_module = graphs(function)
        index = GraphIndex(GraphFacts(graph_module))
        terms = map(index.calls.term, graph_module.graph.find_nodes(op="call_function", target=VIEW))
        assert ("linear" in {term.name for term in terms if term is not None}) is is_layer


OTHERS = [
    (lambda m, x: x.softmax(1), lambda m, x: x.softmax(2)),
    (lambda m, x: x.double(), lambda m, x: x.half()),
    (lambda m, x: x - x.sin(), lambda m, x: x.sin() - x),
    (lambda m, x: x[:, 1:], lambda m, x: x[:, :1]),
    (lambda m, x: F.gelu(x), lambda m, x: F.gelu(x, approximate="tanh")),
    (lambda m, x: x.mean(-1), lambda m, x: x.mean(-1, keepdim=True)),
    (lambda m, x: F.max_pool1d(x, 2), lambda m, x: F.max_pool1d(x, 2, stride=1)),
    (lambda m, x: F.max_pool2d(x, 2), lambda m, x: F.max_pool2d(x, (2, 1))),
    (lambda m, x: torch.div(x, 2), lambda m, x: torch.div(x, 2, rounding_mode="floor")),
]


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_other_calls_have_other_forms(first, second):
    for one, other in zip(forms(first), forms(second), strict=True):
        assert one != other
