"""FuseScale: which products go into the weights of the layer before, and that they come out exactly."""

import copy

import pytest
import torch
from dialects import DIALECTS, in_dialect
from exactness import COPIES, before_and_after, check, check_copies, refused, snapshot, traced
from expecttest import assert_expected_inline
from torch import fx, nn

import fxlab
from fxlab import FuseScale

FUSE = FuseScale()

# What torch says of its own code when it writes a program down.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Scaled(nn.Module):
    """A layer, and whatever function is given of its result."""

    def __init__(self, function=lambda y: y * 0.25, layer=None):
        super().__init__()
        self.function = function
        self.layer = nn.Linear(4, 6) if layer is None else layer

    def forward(self, x):
        return self.function(self.layer(x))


def why_not(function=lambda y: y * 0.25, layer=None):
    return refused(FUSE, traced(Scaled(function, layer)))


def test_the_graph_before_and_after():
    assert_expected_inline(
        before_and_after(FUSE, traced(Scaled(lambda y: y.view(-1, 2, 3) * 0.25 + 1))),
        """\
x = input
layer = self.layer(x)  # Linear: weight (6, 4), bias (6,)
view = layer.view(-1, 2, 3)
mul = mul(view, 0.25)
add = add(mul, 1)
return add

becomes

x = input
layer = self.layer(x)  # Linear: weight (6, 4), bias (6,)
view = layer.view(-1, 2, 3)
add = add(view, 1)
return add
""",
    )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(4, 6), (3, 4)),
        (nn.Linear(4, 6, bias=False), (3, 4)),
        (nn.Conv1d(4, 6, 2, bias=False), (2, 4, 5)),
        (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3), (1, 4, 5, 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("function", [lambda y: y * 0.3, lambda y: 7 * y, lambda y: torch.div(y, -3.0)])
def test_numbers_go_into_the_weights_and_come_out(layer, shape, function, dialect):
    model, x = Scaled(function, layer), torch.randn(shape)
    gm = traced(model)
    fx.passes.shape_prop.ShapeProp(gm).propagate(x)
    gm = check(FUSE, model, x, marked=1, gm=in_dialect(gm, dialect), tolerance=1e-5)
    assert not FUSE.explain(gm).size


@pytest.mark.parametrize("source", ["trace", "export", "decomposed"])
def test_queries_are_scaled_by_their_weights(source):
    class Query(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            query, key = (y.view(2, 3, 2, 4).transpose(1, 2) for y in (self.query(x) * 0.3, self.key(x)))
            return query @ key.transpose(-1, -2)

    model, x = Query().eval(), torch.randn(2, 3, 8)
    if source == "trace":
        gm = fxlab.symbolic_trace(model, (x,))
    else:
        program = torch.export.export(model, (x,))
        gm = fxlab.from_exported(program.run_decompositions() if source == "decomposed" else program)
    gm = check(FUSE, model, x, marked=2 if source == "decomposed" else 1, gm=gm, tolerance=1e-5)
    torch.testing.assert_close(gm.get_parameter("query.bias").detach(), model.query.bias.detach() * 0.3)


def test_powers_of_two_keep_every_bit():
    check(FUSE, Scaled(lambda y: y * 0.125), torch.randn(3, 4), marked=1, tolerance=0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_any_precision_are_scaled(dtype):
    model, x = Scaled(lambda y: y * 0.3).to(dtype), torch.randn(3, 4).to(dtype)
    gm = check(FUSE, model, x, marked=1)
    assert gm.layer.weight.dtype == dtype


@pytest.mark.parametrize("kind", COPIES)
def test_copies_can_be_reversed(kind):
    check_copies(FUSE, traced(Scaled()), COPIES[kind], ["layer"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_weights_that_are_trained_in_between_go_back(dialect):
    model, x = Scaled(lambda y: y * 0.3), torch.randn(3, 4)
    gm = traced(model)
    fx.passes.shape_prop.ShapeProp(gm).propagate(x)
    gm = in_dialect(gm, dialect)
    weight = gm.layer.weight
    FUSE(gm)
    with torch.no_grad():
        gm.layer.weight.mul_(1.5)
    expected = gm(x)
    FUSE(gm, reverse=True)
    assert gm.layer.weight is weight
    torch.testing.assert_close(gm(x), expected)


def test_what_is_only_cast_comes_back_cast_bit_for_bit():
    model = Scaled(lambda y: y * 0.3)
    expected = copy.deepcopy(model).double().layer.state_dict()
    gm = FUSE(traced(model)).double()
    FUSE(gm, reverse=True)
    assert {name: tensor.dtype for name, tensor in gm.layer.state_dict().items()} == {
        "weight": torch.float64,
        "bias": torch.float64,
    }
    for name, tensor in gm.layer.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-7, atol=1e-7)


def test_a_second_number_goes_into_the_same_layer():
    gm = check(FUSE, Scaled(lambda y: y * 0.5 * 4), torch.randn(3, 4), marked=1, tolerance=0.0)
    assert len(gm.graph.nodes) == 3


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda y: y * 0.25 + y, "other-users"),
        (lambda y: (y.add_(1), y * 0.25)[1], "other-users"),
        (lambda y: y * 0.0, "scale"),
        (lambda y: y / 0, "scale"),
        (lambda y: y * float("nan"), "scale"),
        (lambda y: y * 1e30, "scale"),
        (lambda y: y * 1e-38, "not-normal"),
        (lambda y: (y * 0.3).long(), "rounded-later"),
    ],
)
def test_what_would_change_the_function_is_refused(function, code):
    assert why_not(function) == code


@pytest.mark.parametrize(
    "function",
    [lambda y: y * y, lambda y: 2 / y, lambda y: y.relu() * 2, lambda y: y[0] * 2, lambda y: y - 2],
)
def test_other_arithmetic_is_no_candidate(function):
    assert FUSE.candidates(traced(Scaled(function))) == []


def test_a_layer_that_is_called_twice_stays():
    class Twice(Scaled):
        def forward(self, x):
            return self.layer(x) * 0.5 + self.layer(x + 1)

    assert refused(FUSE, traced(Twice())) == "called-repeatedly"


def test_a_product_that_is_written_afterwards_is_fused():
    model = Scaled(lambda y: (y.view(-1, 3) * 0.5).add_(1))
    check(FUSE, model, torch.randn(2, 4), marked=2)


def test_reversal_leaves_nothing():
    gm = traced(Scaled())
    before = snapshot(gm)
    FUSE(FUSE(gm), reverse=True)
    assert snapshot(gm).nodes == before.nodes
