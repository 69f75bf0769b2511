"""FoldConstants: what depends on constant tensors alone becomes a buffer, and nothing else does."""

import pytest
import torch
from exactness import Apply, assert_close, check, refused
from random_modules import ReadsBuffers
from torch import fx, nn
from torch.nn import functional as F

import fxlab
from fxlab import FoldConstants

FOLD = FoldConstants()


class Constants(Apply):
    """Whatever function is given, and a frozen weight, a trained one and a buffer to use in it."""

    def __init__(self, function, dtype=torch.float32):
        frozen = nn.Parameter(torch.randn(3, 3).to(dtype), requires_grad=False)
        trained = nn.Parameter(torch.randn(3, 3))
        super().__init__(function, frozen=frozen, trained=trained, buffer=torch.randn(3, 3).to(dtype))


def traced(model):
    return fx.GraphModule(model, ReadsBuffers().trace(model))


def names(gm):
    return [node.name for node in gm.graph.nodes]


def why_not(model):
    return refused(FOLD, traced(model))


@pytest.mark.parametrize(
    ("function", "nodes"),
    [
        (lambda self, x: x @ (self.frozen.t() * 2), 4),
        (lambda self, x: x @ (self.frozen @ self.buffer), 4),
        (lambda self, x: x + self.buffer.sum(), 4),
        (lambda self, x: F.linear(x, torch.cat([self.frozen, self.buffer])), 4),
        (lambda self, x: x * self.buffer.abs().sqrt()[0] + self.buffer, 6),
        (lambda self, x: x.view(self.buffer.size(0), -1) * self.buffer.relu(), 7),
        (lambda self, x: x + torch.where(self.buffer > 0, self.frozen, 0.0), 4),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_depends_on_constant_tensors_becomes_a_buffer(function, nodes, dtype):
    model = Constants(function, dtype)
    gm = check(FOLD, model, torch.randn(3, 3, dtype=dtype), marked=1, gm=traced(model), tolerance=0.0)
    assert len(gm.graph.nodes) == nodes
    (node,) = FOLD.get_transformed_nodes(gm)
    assert node.op == "get_attr"
    assert not gm.get_buffer(node.target).requires_grad


def test_the_bits_are_those_that_the_graph_computes():
    model = Constants(lambda self, x: x + (self.frozen @ self.buffer).softmax(-1) / 7)
    gm, x = FOLD(traced(model)), torch.randn(3, 3)
    assert torch.equal(gm(x), model(x))


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda self, x: x @ self.trained.t(), "requires-grad"),
        (lambda self, x: x @ (self.frozen + self.trained), "requires-grad"),
        (lambda self, x: x + self.buffer.t().add_(1) + self.buffer.t(), "written-in-place"),
        (lambda self, x: x + (self.buffer * 2).add_(x), "written-in-place"),
        (lambda self, x: (x, self.buffer * 2), "returned"),
        (lambda self, x: (x, (self.buffer * 2).view(-1)), "returned"),
        (lambda self, x: x.view(self.buffer.size(0), -1).sum(), "unusual-result"),
        (lambda self, x: x + self.buffer.view(7).sum(), "fails"),
    ],
)
def test_what_is_not_constant_stays(function, code):
    model = Constants(function)
    assert why_not(model) == code


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x + self.buffer,
        lambda self, x: x + torch.rand_like(self.buffer),
        lambda self, x: x + F.dropout(self.buffer),
        lambda self, x: x + self.buffer * x.sum(),
        lambda self, x: x + x.size(0),
    ],
)
def test_plain_readings_and_random_numbers_are_no_candidates(function):
    model = Constants(function)
    assert FOLD.explain(traced(model)).empty


def test_statistics_that_a_batch_norm_in_training_writes_are_not_constant():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(x) + self.norm.running_mean * 2

    model = Model()
    assert why_not(model) == "written-in-place"
    check(FOLD, model.eval(), torch.randn(2, 3), marked=1, gm=traced(model), tolerance=0.0)


def test_graphs_that_change_the_grad_mode_are_left_alone():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output(graph.call_function(torch.add, (x, graph.call_method("t", (graph.get_attr("buffer"),)))))
    assert refused(FOLD, fx.GraphModule(Constants(None), graph)) == "mode-changes"


def test_tensors_without_values_are_left_alone():
    model = Constants(lambda self, x: x + self.buffer.t()).to("meta")
    assert why_not(model) == "no-data"


def test_what_a_constant_was_computed_from_comes_back_when_another_that_read_it_is_gone():
    def function(self, x):
        weight = self.frozen
        return [x * weight.sum(), x * weight.sum()][0]

    model, x = Constants(function), torch.randn(2, 3)
    gm = FOLD(fx.symbolic_trace(model))
    gm.graph.eliminate_dead_code()
    gm = FOLD(gm, reverse=True)
    assert_close(gm(x), model(x), 0.0)
    assert FOLD.get_transformed_nodes(gm) == []


def test_a_constant_is_unfolded_although_what_it_was_computed_of_is_dead_code_by_then():
    def function(m, x):
        m.norm(x)
        return x * m.norm.running_mean.sum()

    model = Apply(function, norm=nn.BatchNorm1d(4))
    gm = fxlab.from_exported(torch.export.export(model, (torch.randn(3, 4),)))
    FOLD(gm)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    FOLD(gm, reverse=True)
    assert [node.name for node in gm.graph.find_nodes(op="get_attr")] == ["norm_running_mean"]
    x = torch.randn(3, 4)
    assert torch.equal(gm(x), model(x))
