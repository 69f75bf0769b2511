"""FuseBiasInLinear: which biases become a column of the weight, and that they come back exactly."""

import pytest
import torch
from exactness import (
    COPIES,
    assert_close,
    assert_is,
    before_and_after,
    check,
    check_copies,
    reasons,
    refused,
    snapshot,
    traced,
)
from expecttest import assert_expected_inline
from torch import fx, nn

import fxlab
from fxlab.transformations import FuseBiasInLinear, MergeLinears


class Layer(nn.Module):
    """One linear."""

    def __init__(self, in_features=6, out_features=4, bias=True, dtype=None):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias, dtype=dtype)

    def forward(self, x):
        return self.linear(x)


def why_not(gm):
    return refused(FuseBiasInLinear(), gm)


def test_the_graph_before_and_after():
    gm = traced(Layer())
    assert_expected_inline(
        before_and_after(FuseBiasInLinear(), gm),
        """\
x = input
linear = self.linear(x)  # Linear: weight (4, 6), bias (4,)
return linear

becomes

x = input
linear_input_and_one = pad(x, (0, 1), value=1.0)
linear = self.linear(linear_input_and_one)  # Linear: weight (4, 7)
return linear
""",
    )


@pytest.mark.parametrize(
    "model", [Layer(), nn.Sequential(Layer(), nn.ReLU())], ids=["at the root", "below it"]
)
def test_the_bias_becomes_a_column_of_the_weight(model):
    gm = check(FuseBiasInLinear(), model, torch.randn(2, 6), marked=1)
    (node,) = FuseBiasInLinear().get_transformed_nodes(gm)
    linear = gm.get_submodule(node.target)
    assert (linear.in_features, linear.out_features, linear.bias) == (7, 4, None)
    assert linear.weight.shape == (4, 7)


@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 6), (2, 0, 6), (2, 3, 4, 6)])
def test_inputs_of_any_number_of_dimensions_and_batches_of_none(shape):
    check(FuseBiasInLinear(), Layer(), torch.randn(shape), marked=1)


@pytest.mark.parametrize(("in_features", "out_features"), [(1, 1), (6, 1), (1, 4)])
def test_single_features(in_features, out_features):
    check(FuseBiasInLinear(), Layer(in_features, out_features), torch.randn(3, in_features), marked=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_are_kept(dtype):
    gm = check(FuseBiasInLinear(), Layer(dtype=dtype), torch.randn(2, 6, dtype=dtype), marked=1)
    assert gm.linear.weight.dtype == dtype


def test_a_linear_without_bias_is_no_candidate_and_gets_none():
    gm = check(FuseBiasInLinear(), Layer(bias=False), torch.randn(2, 6), marked=0)
    assert gm.linear.bias is None
    assert FuseBiasInLinear().explain(gm).empty


def test_arguments_by_keyword():
    class ByKeyword(Layer):
        def forward(self, x):
            return self.linear(input=x)

    check(FuseBiasInLinear(), ByKeyword(), torch.randn(2, 6), marked=1)


def test_gradients_reach_weight_and_bias():
    model = Layer()
    gm = FuseBiasInLinear()(traced(model))
    x = torch.randn(2, 6)
    gm(x).square().sum().backward()
    model(x).square().sum().backward()
    expected = torch.cat([model.linear.weight.grad, model.linear.bias.grad[:, None]], 1)
    torch.testing.assert_close(gm.linear.weight.grad, expected)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept(training):
    assert FuseBiasInLinear()(traced(Layer().train(training))).linear.training == training


def test_frozen_linears_stay_frozen():
    gm = check(FuseBiasInLinear(), Layer().requires_grad_(False), torch.randn(2, 6), marked=1)
    assert not gm.linear.weight.requires_grad


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_linear_of_which_only_a_part_is_trained_is_left_alone(frozen):
    gm = traced(Layer())
    getattr(gm.linear, frozen).requires_grad_(False)
    assert why_not(gm) == "trained-in-part"


def test_a_linear_that_is_called_twice_is_left_alone():
    class Twice(Layer):
        def forward(self, x):
            return self.linear(x) + self.linear(2 * x)

    model = Twice()
    gm = check(FuseBiasInLinear(), model, torch.randn(2, 6), marked=0)
    assert gm.linear is model.linear
    assert set(reasons(FuseBiasInLinear(), gm).values()) == {"called-repeatedly"}


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_that_a_get_attr_reads_is_left_alone(name):
    class Reads(Layer):
        def forward(self, x):
            return self.linear(x), x.sum() * getattr(self.linear, name)

    assert why_not(traced(Reads())) == "shared-parameter"


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_tied_parameter_is_left_alone_and_stays_tied(name):
    gm = traced(Layer())
    gm.other = nn.Linear(6, 4)
    setattr(gm.other, name, getattr(gm.linear, name))
    assert why_not(gm) == "shared-parameter"
    assert getattr(gm.other, name) is getattr(gm.linear, name)


@pytest.mark.parametrize(
    "register",
    [
        lambda linear: linear.register_forward_hook(lambda m, args, out: out * 2),
        lambda linear: linear.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda linear: linear.bias.register_hook(lambda grad: grad * 2),
    ],
)
def test_a_hooked_linear_is_left_alone(register):
    model = Layer()
    register(model.linear)
    assert why_not(traced(model)) == "hooked"


def test_a_subclass_is_left_alone():
    subclass = nn.modules.linear.NonDynamicallyQuantizableLinear(6, 4)
    assert why_not(traced(nn.Sequential(subclass))) == "unexpected-class"


def test_a_parametrized_linear_is_left_alone():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Linear) or super().is_leaf_module(m, name)

    model = Layer()
    nn.utils.parametrizations.weight_norm(model.linear)
    assert why_not(fx.GraphModule(model, Leaves().trace(model))) == "parametrized"


def test_a_bias_of_another_dtype_is_left_alone_and_not_cast():
    gm = traced(Layer())
    gm.linear.bias.data = gm.linear.bias.data.double()
    assert why_not(gm) == "mixed-dtypes"


def test_symbolic_sizes_stay_symbolic():
    model = Layer()
    gm = fxlab.symbolic_trace(model, (torch.randn(2, 6),))
    gm = check(FuseBiasInLinear(), model, torch.randn(5, 6), marked=1, gm=gm)
    (padded,) = (node for node in gm.graph.nodes if node.name == "linear_input_and_one")
    size = gm.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0]
    assert padded.meta["val"].shape[0].node.expr == size.node.expr
    assert int(padded.meta["val"].shape[1]) == 7


def test_each_linear_of_a_chain_is_fused():
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3), nn.Linear(3, 2, bias=False))
    check(FuseBiasInLinear(), model, torch.randn(2, 6), marked=2)


def test_applying_twice_fuses_once():
    gm = traced(Layer())
    before = snapshot(gm)
    fuse = FuseBiasInLinear()
    fuse(fuse(gm))
    assert gm.linear.in_features == 7
    assert_is(fuse(gm, reverse=True), before)


@pytest.mark.parametrize("out_features", [1, 4])
def test_weights_trained_since_are_brought_back(out_features):
    model = Layer(out_features=out_features)
    fuse = FuseBiasInLinear()
    gm = fuse(traced(model))
    with torch.no_grad():
        gm.linear.weight.add_(0.5)
    x = torch.randn(2, 6)
    expected = gm(x)
    fuse(gm, reverse=True)
    assert gm.linear is model.linear
    assert_close(gm(x), expected)


@pytest.mark.parametrize("reversed_first", [FuseBiasInLinear(), MergeLinears()], ids=lambda t: t.name)
def test_merged_linears_are_fused_and_reversed_in_any_order(reversed_first):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            return self.query(x), self.key(x)

    model = Attention()
    gm = traced(model)
    before = snapshot(gm)
    x = torch.randn(2, 6)
    FuseBiasInLinear()(MergeLinears()(gm))
    assert_close(gm(x), model(x))
    reversed_first(gm, reverse=True)
    assert reversed_first.get_transformed_nodes(gm) == []
    assert_close(gm(x), model(x))
    (other,) = {FuseBiasInLinear(), MergeLinears()} - {reversed_first}
    assert other.get_transformed_nodes(gm) != []
    assert_is(other(gm, reverse=True), before)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_copies_are_reversed_exactly_and_independently(copied):
    gm = traced(Layer())
    check_copies(FuseBiasInLinear(), gm, copied, ["linear"])


def test_explain_says_what_would_be_done():
    (row,) = FuseBiasInLinear().explain(traced(Layer())).itertuples()
    assert (row.Index, row.matched, row.reason) == ("linear", True, "its bias becomes column 6 of its weight")


@pytest.mark.parametrize(
    "call",
    [
        lambda x, weight, bias: nn.functional.linear(x, weight, bias=bias),
        lambda x, weight, bias: nn.functional.linear(input=x, weight=weight, bias=bias),
    ],
    ids=["bias", "all"],
)
def test_arguments_given_by_name_become_those_of_the_wider_product(call):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 4)

        def forward(self, x):
            return call(x, self.linear.weight, self.linear.bias)

    check(FuseBiasInLinear(), Named(), torch.randn(2, 6), marked=1)
