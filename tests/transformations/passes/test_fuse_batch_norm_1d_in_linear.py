"""FuseBatchNorm1dInLinear: what it folds, before and after a linear, and that it is taken back exactly."""

import copy
import operator

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
from torch.fx.passes.shape_prop import ShapeProp

import fxlab
from fxlab import FuseBatchNorm1dInLinear


class Pair(nn.Module):
    """A linear and a batch norm in evaluation mode, with statistics that are not trivial."""

    def __init__(self, linear=None, norm=None, dtype=None):
        super().__init__()
        self.linear = nn.Linear(6, 4) if linear is None else linear
        self.norm = nn.BatchNorm1d(self.features) if norm is None else norm
        self.eval().to(dtype)
        with_statistics(self.norm)


class NormLast(Pair):
    features = 4

    def forward(self, x):
        return self.norm(self.linear(x))


class NormFirst(Pair):
    features = 6

    def forward(self, x):
        return self.linear(self.norm(x))


ORDERS = pytest.mark.parametrize("order", [NormLast, NormFirst])


def shaped(model, *inputs, graph=None):
    """Trace, and let ShapeProp note the shapes."""
    gm = traced(model) if graph is None else fx.GraphModule(model, graph)
    ShapeProp(gm).propagate(*(copy.deepcopy(inputs) or (torch.randn(2, 6),)))
    return gm


def check_fused(model, x, *, marked=1, tolerance=None):
    return check(FuseBatchNorm1dInLinear(), model, x, marked=marked, gm=shaped(model, x), tolerance=tolerance)


def why_not(gm):
    return refused(FuseBatchNorm1dInLinear(), gm)


def test_the_graph_before_and_after():
    gm = shaped(NormFirst())
    assert_expected_inline(
        before_and_after(FuseBatchNorm1dInLinear(), gm),
        """\
x = input
norm = self.norm(x)  # BatchNorm1d: weight (6,), bias (6,)
linear = self.linear(norm)  # Linear: weight (4, 6), bias (4,)
return linear

becomes

x = input
evaluation_mode = self.evaluation_mode()  # RequireModes
linear = self.linear(x)  # Linear: weight (4, 6), bias (4,)
return linear
""",
    )


@ORDERS
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_the_batch_norm_is_folded_into_weight_and_bias(order, bias, affine):
    model = order(nn.Linear(6, 4, bias), nn.BatchNorm1d(order.features, affine=affine))
    gm = check_fused(model, torch.randn(2, 6))
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert not hasattr(gm, "norm")
    assert gm.linear.bias is not None


@ORDERS
@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_none_and_of_one(order, size):
    check_fused(order(), torch.randn(size, 6))


def test_a_linear_between_two_batch_norms_takes_both_when_applied_twice():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4), nn.BatchNorm1d(4)).eval()
    x = torch.randn(3, 6)
    gm = shaped(model, x)
    before = snapshot(gm)
    fuse = FuseBatchNorm1dInLinear()
    fuse(fuse(gm))
    assert_close(gm(x), model(x))
    assert_is(fuse(gm, reverse=True), before)


def test_three_dimensions_are_left_alone_even_where_both_sizes_agree():
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(self.linear(x))

    model, x = Square().eval(), torch.randn(2, 4, 4)
    assert why_not(shaped(model, x)) == "dimensions"
    check_fused(model, x, marked=0)


@ORDERS
def test_an_unknown_shape_is_left_alone(order):
    assert why_not(traced(order())) == "unknown-shape"


@ORDERS
def test_symbolic_sizes_are_read_without_fixing_them(order):
    model = order()
    x = torch.randn(2, 6)
    gm = fxlab.symbolic_trace(model, (x,))
    gm = check(FuseBatchNorm1dInLinear(), model, torch.randn(5, 6), marked=1, gm=gm)
    assert gm(torch.randn(1, 6)).shape == (1, 4)


def test_a_batch_norm_that_others_read_is_left_alone():
    class Branches(NormFirst):
        def forward(self, x):
            norm = self.norm(x)
            return self.linear(norm), norm.sum()

    assert why_not(shaped(Branches())) == "other-users"


def test_an_input_written_between_batch_norm_and_linear_is_left_alone():
    graph = fx.Graph()
    x = graph.call_function(operator.mul, (graph.placeholder("x"), 2.0))
    norm = graph.call_module("norm", (x,))
    graph.call_method("zero_", (x,))
    graph.output(graph.call_module("linear", (norm,)))
    model = NormFirst().requires_grad_(False)
    gm = shaped(model, torch.randn(2, 6), graph=graph)
    check(FuseBatchNorm1dInLinear(), copy.deepcopy(gm), torch.randn(2, 6), marked=0, gm=gm)
    assert why_not(gm) == "written-in-between"


def test_a_result_of_the_batch_norm_that_is_written_is_left_alone():
    graph = fx.Graph()
    norm = graph.call_module("norm", (graph.placeholder("x"),))
    graph.call_method("zero_", (norm,))
    graph.output(graph.call_module("linear", (norm,)))
    gm = shaped(NormFirst().requires_grad_(False), torch.randn(2, 6), graph=graph)
    assert why_not(gm) == "other-users"


def test_what_has_no_place_to_go_back_to_is_told():
    fuse = FuseBatchNorm1dInLinear()
    model = NormFirst(nn.Linear(6, 4, bias=False))
    gm = fuse(shaped(model))
    with torch.no_grad():
        gm.linear.bias.add_(1.0)
    with pytest.warns(UserWarning, match="cannot bring what was written"):
        fuse(gm, reverse=True)
    assert gm.linear is model.linear
    assert gm.linear.bias is None


def test_a_batch_norm_of_a_flattened_linear_says_what_stands_between():
    class Flattened(Pair):
        features = 4

        def forward(self, x):
            x = self.linear(x)
            return self.norm(x.flatten(0, 1)).reshape_as(x)

    gm = fxlab.symbolic_trace(Flattened(), torch.randn(2, 7, 6))
    assert refused(FuseBatchNorm1dInLinear(), gm) == "other-operator"
