"""ChangeTrueDivToMulByInverse: which divisions become multiplications, and that the constant comes back."""

import math
import operator

import pytest
import torch
from exactness import Apply, check, reasons, refused, traced
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from fxlab import ChangeTrueDivToMulByInverse


class Divide(Apply):
    """A function of the input alone."""

    def forward(self, x):
        return self.function(x)


def why_not(function, x, *, shaped=True):
    """Check that a division is left alone, and computes the same; return the code of the reason."""
    model = Divide(function)
    gm = traced(model)
    if shaped:
        ShapeProp(gm).propagate(x)
    check(ChangeTrueDivToMulByInverse(), model, x, marked=0, gm=gm)
    return refused(ChangeTrueDivToMulByInverse(), gm)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "divide",
    [
        lambda x: x / 49.0,
        lambda x: x / 8,
        lambda x: x / -3,
        lambda x: x / math.sqrt(64),
        lambda x: torch.div(x, 7.0),
        lambda x: torch.div(input=x, other=7.0),
        lambda x: torch.divide(x, 7),
        lambda x: torch.true_divide(x, 7),
        lambda x: x.div(7.0),
        lambda x: x.divide(7.0),
        lambda x: torch.div(x, 7.0, rounding_mode=None),
        lambda x: x.div(7.0, rounding_mode=None),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_division_by_a_constant_becomes_a_multiplication(divide, dtype):
    gm = check(ChangeTrueDivToMulByInverse(), Divide(divide), torch.randn(3, 4, dtype=dtype), marked=1)
    assert not any("div" in str(node.target) for node in gm.graph.nodes)


@pytest.mark.parametrize("number", [49.0, 3, 0.1, 7e-4, 1 / 3, 2**10, -0.7])
def test_the_constant_comes_back_with_its_type_and_bits(number):
    gm = traced(Divide(lambda x: x / number))
    change = ChangeTrueDivToMulByInverse()
    change(change(gm), reverse=True)
    (node,) = gm.graph.find_nodes(op="call_function", target=operator.truediv)
    assert node.args[1] == number
    assert type(node.args[1]) is type(number)


SPECIAL = torch.tensor([0.0, 1.0, -1.0, math.nan, math.inf])
STAYS = {
    "division-by-zero": [(lambda x, number=number: x / number, SPECIAL) for number in (0, 0.0, -0.0)],
    "not-normal": [
        (lambda x, number=number: x / number, torch.tensor([0.0, 1.0, math.inf]))
        for number in (1e-310, 5e-324, math.inf, -math.inf, math.nan, 1e300)
    ],
    "dtype": [(lambda x: x / 3, torch.tensor(values)) for values in ([1, 3, 7], [True, False], [1 + 2j, 3j])],
    "divisor-type": [(lambda x, number=number: x / number, torch.randn(3)) for number in (1 + 0j, True)],
    "inexact-divisor": [(lambda x: x / (2**53 + 1), SPECIAL.double())],
    "further-arguments": [
        (lambda x: torch.div(x, 3.0, rounding_mode="floor"), SPECIAL),
        (lambda x: x.div(3.0, rounding_mode="trunc"), SPECIAL),
    ],
}
STAYS_WITHOUT_SHAPES = {
    "python-number": [
        lambda x: x * (x.shape[0] / 2),
        lambda x: x * (x.size(-1) / 2),
        lambda x: x * (x.dim() / 4),
        lambda x: x * ((x.numel() + 1) / 3),
        lambda x: x * (x.size()[1] * 2 / 7),
    ],
    "dtype": [
        lambda x: (x > 0) / 3,
        lambda x: x.argmax() / 3,
        lambda x: x.long() / 3,
        lambda x: x.to(torch.int32) / 3,
    ],
}


@pytest.mark.parametrize(("code", "function", "x"), [(code, *each) for code in STAYS for each in STAYS[code]])
def test_what_has_no_exact_inverse_or_is_no_plain_division_stays(code, function, x):
    assert why_not(function, x) == code


@pytest.mark.parametrize(
    ("code", "function"), [(code, each) for code, some in STAYS_WITHOUT_SHAPES.items() for each in some]
)
def test_numbers_and_integers_are_known_by_what_makes_them(code, function):
    assert why_not(function, torch.randn(3, 5), shaped=False) == code


def test_what_is_normal_in_one_dtype_may_not_be_in_another():
    assert why_not(lambda x: x / 1e-5, torch.ones(2, dtype=torch.float16)) == "not-normal"
    assert why_not(lambda x: x / 1e6, torch.ones(2, dtype=torch.float16)) == "not-normal"
    model = Divide(lambda x: x / 1e6)
    x = torch.randn(3)
    gm = traced(model)
    ShapeProp(gm).propagate(x)
    check(ChangeTrueDivToMulByInverse(), model, x, marked=1, gm=gm)
    assert why_not(lambda x: x / 1e6, x, shaped=False) == "not-normal-in-smallest"


def test_a_division_into_an_output_stays():
    graph = fx.Graph()
    x = graph.placeholder("x")
    out = graph.call_method("clone", (x,))
    graph.call_function(torch.div, (x, 3.0), {"out": out})
    graph.output(out)
    gm = fx.GraphModule(nn.Module(), graph)
    check(ChangeTrueDivToMulByInverse(), fx.GraphModule(nn.Module(), graph), torch.randn(3), marked=0, gm=gm)
    assert reasons(ChangeTrueDivToMulByInverse(), gm)["div"] == "further-arguments"


@pytest.mark.parametrize("annotation", [int, float])
def test_a_division_of_an_input_that_is_annotated_as_a_number_stays(annotation):
    graph = fx.Graph()
    x, number = graph.placeholder("x"), graph.placeholder("number", type_expr=annotation)
    size = graph.call_function(int, (graph.call_function(operator.truediv, (number, 49)),))
    graph.output(graph.call_function(operator.mul, (x, size)))
    gm = ChangeTrueDivToMulByInverse()(fx.GraphModule(nn.Module(), graph))
    assert gm(torch.ones(1), 49) == 1
    assert reasons(ChangeTrueDivToMulByInverse(), gm)["truediv"] == "python-number"


ROUNDED = [
    lambda x: (x / 49).floor(),
    lambda x: torch.ceil(x / 49),
    lambda x: (x / 49).long(),
    lambda x: (x / 49) // 1,
    lambda x: (x / 49) % 1,
    lambda x: torch.remainder(x / 49, 1),
    lambda x: (x / 49).remainder_(1),
    lambda x: (x / 49).fmod(1),
    lambda x: torch.trunc((x / 49).view(-1).unsqueeze(0)),
    lambda x: torch.round((x / 49 * 8).clamp(max=15) + 0.5),
    lambda x: (torch.log(x) / math.log(16) * 8).to(torch.long),
    lambda x: (x / 49).sin().floor(),
    lambda x: torch.lerp(x / 49, x, 0.5).round(),
    lambda x: torch.div(x / 49, x, rounding_mode="floor"),
    lambda x: (x / 49).view(torch.int32),
    lambda x: (x / 49).flip(0).frac(),
    lambda x: torch.ops.aten.floor(torch.ops.aten.neg(x / 49)),
]


@pytest.mark.parametrize("function", ROUNDED)
@pytest.mark.parametrize("shaped", [True, False])
def test_what_is_rounded_to_integers_later_on_stays(function, shaped):
    x = torch.arange(49.0, 49 * 40, 49.0)
    assert why_not(function, x, shaped=shaped) == "rounded-later"


@pytest.mark.parametrize("function", [lambda x: (x / 8).floor(), lambda x: (x / 0.25).long()])
def test_powers_of_two_are_exact_whatever_becomes_of_them(function):
    check(ChangeTrueDivToMulByInverse(), Divide(function), torch.arange(40.0), marked=1, tolerance=0.0)


def test_what_is_rounded_beyond_a_matrix_product_is_of_no_concern():
    model = Divide(lambda x: ((x / 7) @ x).long())
    check(ChangeTrueDivToMulByInverse(), model, torch.eye(3), marked=1)


def test_a_division_by_its_special_name_becomes_a_multiplication_by_its():
    graph = fx.Graph()
    graph.output(graph.call_method("__truediv__", (graph.placeholder("x"), 8.0)))
    gm = ChangeTrueDivToMulByInverse()(fx.GraphModule(nn.Module(), graph))
    assert [node.target for node in gm.graph.find_nodes(op="call_method", target="__mul__")] == ["__mul__"]
