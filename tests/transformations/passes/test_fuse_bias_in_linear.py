"""FuseBiasInLinear: which biases become a column of the weight, and that they come back exactly."""

import pytest
import torch
from exactness import check, refused, traced
from torch import nn

from fxlab import FuseBiasInLinear


class Layer(nn.Module):
    """One linear."""

    def __init__(self, in_features=6, out_features=4, bias=True, dtype=None):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias, dtype=dtype)

    def forward(self, x):
        return self.linear(x)


def why_not(gm):
    return refused(FuseBiasInLinear(), gm)


@pytest.mark.parametrize(
    "model", [Layer(), nn.Sequential(Layer(), nn.ReLU())], ids=["at the root", "below it"]
)
def test_the_bias_becomes_a_column_of_the_weight(model):
    gm = check(FuseBiasInLinear(), model, torch.randn(2, 6), marked=1)
    (node,) = FuseBiasInLinear().get_transformed_nodes(gm)
    linear = gm.get_submodule(node.target)
    assert (linear.in_features, linear.out_features, linear.bias) == (7, 4, None)
    assert linear.weight.shape == (4, 7)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_linear_of_which_only_a_part_is_trained_is_left_alone(frozen):
    gm = traced(Layer())
    getattr(gm.linear, frozen).requires_grad_(False)
    assert why_not(gm) == "trained-in-part"


def test_a_bias_of_another_dtype_is_left_alone_and_not_cast():
    gm = traced(Layer())
    gm.linear.bias.data = gm.linear.bias.data.double()
    assert why_not(gm) == "mixed-dtypes"


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
