"""FuseScale: which products go into the weights of the layer before, and that they come out exactly."""

import copy

import pytest
import torch
from dialects import DIALECTS, in_dialect
from exactness import COPIES, before_and_after, captured, check, check_copies, refused, snapshot, traced
from expecttest import assert_expected_inline
from torch import fx, nn
from written_operands import assert_stale_once_written, assert_zeros_are_named

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


class LayerScale(nn.Module):
    """A layer, and one trained number for each of its channels."""

    def __init__(self, layer, shape, function):
        super().__init__()
        self.layer, self.gamma = layer, nn.Parameter(torch.rand(shape) + 0.5)
        self.function = function

    def forward(self, x):
        return self.function(self.layer(x), self.gamma)


SCALED = {
    "linear": (nn.Linear(4, 6), (3, 4), (6,), lambda y, gamma: gamma * y),
    "quotient": (nn.Linear(4, 6), (3, 4), (6,), lambda y, gamma: y / gamma),
    "one for all": (nn.Linear(4, 6), (3, 4), (1,), lambda y, gamma: y * gamma),
    "rows": (nn.Linear(4, 6), (2, 3, 4), (6, 1), lambda y, gamma: y.transpose(1, 2) * gamma),
    "heads": (nn.Linear(4, 6), (2, 3, 4), (6,), lambda y, gamma: y.view(3, 2, 6) * gamma),
    "copied": (nn.Linear(4, 6), (2, 3, 4), (6,), lambda y, gamma: y.flatten(0, 1).clone() * gamma),
    "conv": (nn.Conv2d(4, 6, 3), (1, 4, 5, 5), (6, 1, 1), lambda y, gamma: y * gamma),
    "flat": (nn.Conv1d(4, 6, 1), (2, 4, 5), (6,), lambda y, gamma: y * gamma.view(1, -1, 1)),
    "index": (nn.Conv1d(4, 6, 1), (2, 4, 5), (6,), lambda y, gamma: y * gamma[:, None]),
    "groups": (nn.ConvTranspose1d(4, 6, 2, groups=2), (2, 4, 5), (6, 1), lambda y, gamma: gamma * y),
    "permuted": (
        *(nn.Linear(4, 6), (2, 3, 3, 4), (6,)),
        lambda y, gamma: y.permute(0, 3, 1, 2).mul(gamma.reshape(1, -1, 1, 1)),
    ),
}


@pytest.mark.parametrize("source", ["trace", "export", "decomposed"])
@pytest.mark.parametrize("name", SCALED)
def test_numbers_of_channels_go_into_the_weights_and_come_out(name, source):
    layer, size, shape, function = SCALED[name]
    model, x = LayerScale(copy.deepcopy(layer), shape, function).eval(), torch.randn(size)
    graph = captured(source, model, x)
    ((node,),) = FUSE.candidates(graph)
    marked = len(FUSE.get_transformed_nodes(FUSE(copy.deepcopy(graph))))
    fused = check(FUSE, model, x, marked=marked, gm=graph, tolerance=1e-5)
    assert node not in [each.name for each in fused.graph.nodes]
    assert not any("gamma" in str(node.target) for node in fused.graph.nodes)
    with pytest.raises(AssertionError, match="FuseScale"), torch.autocast("cpu", torch.bfloat16):
        fused(x)


def test_weights_that_were_trained_are_divided_by_the_numbers():
    model, x = LayerScale(nn.Linear(4, 6), (6,), lambda y, gamma: y * gamma), torch.randn(3, 4)
    gm = FUSE(traced(model))
    with torch.no_grad():
        gm.layer.weight.mul_(1.5)
    expected = gm(x)
    torch.testing.assert_close(FUSE(gm, reverse=True)(x), expected)
    assert gm.layer.weight is model.layer.weight


@pytest.mark.parametrize("function", [lambda y, gamma: y * gamma, lambda y, gamma: y / gamma])
@pytest.mark.parametrize(
    "layer", [nn.Linear(4, 6), nn.ConvTranspose1d(4, 6, 2, groups=2)], ids=["linear", "groups"]
)
def test_weights_are_divided_by_the_numbers_as_they_are_then(layer, function):
    is_linear = isinstance(layer, nn.Linear)
    model = LayerScale(copy.deepcopy(layer), (6,) if is_linear else (6, 1), function)
    gm, x = FUSE(traced(model)), torch.randn((3, 4) if is_linear else (2, 4, 5))
    with torch.no_grad():
        for place, parameter in enumerate(gm.parameters()):
            parameter.mul_(1.5 + place)
    expected = gm(x)
    torch.testing.assert_close(FUSE(gm, reverse=True)(x), expected)


def test_weights_that_zeros_cannot_divide_are_named():
    model = LayerScale(nn.Linear(4, 6), (6,), lambda y, gamma: y * gamma)
    assert_zeros_are_named(FUSE, traced(model))


def test_a_write_into_the_numbers_makes_the_layer_stale():
    model = LayerScale(nn.Linear(4, 6), (6,), lambda y, gamma: y * gamma)
    assert_stale_once_written(FUSE, traced(model), model)


def test_numbers_go_into_the_weights_of_a_body():
    class Either(LayerScale):
        def forward(self, x):
            def scaled(x):
                return self.function(self.layer(x), self.gamma)

            return torch.cond(x.sum() > 0, scaled, lambda x: x.cos(), (x,))

    model, x = Either(nn.Linear(4, 4), (4,), lambda y, gamma: y * gamma), torch.ones(3, 4)
    gm = fxlab.from_exported(torch.export.export(model, (x,)))
    assert FUSE.explain(gm)["matched"].tolist() == [True]
    before = gm(x)
    torch.testing.assert_close(FUSE(gm)(x), before)
    nn.init.ones_(model.gamma)
    assert len(FUSE.get_stale_nodes(gm)) == 1
    assert torch.equal(FUSE(gm, reverse=True)(x), model(x))


@pytest.mark.parametrize(
    ("name", "shape", "code"),
    [
        ("other places", (2, 1), "not-per-channel"),
        ("zero", (4,), "scale"),
        ("frozen layer", (4,), "only-operand-trained"),
        ("double", (4,), "mixed-dtypes"),
        ("meta", (4,), "no-data"),
        ("more dimensions", (1, 1, 1, 4), "unknown-shape"),
        ("unknown view", (4,), "unknown-shape"),
    ],
)
def test_numbers_that_are_not_those_of_channels_stay(name, shape, code):
    model = LayerScale(nn.Linear(4, 4), shape, lambda y, gamma: y * gamma)
    if name == "zero":
        nn.init.zeros_(model.gamma)
    elif name == "frozen layer":
        model.layer.requires_grad_(False)
    elif name == "double":
        model.gamma = nn.Parameter(model.gamma.double())
    elif name == "meta":
        model.gamma = nn.Parameter(model.gamma.to("meta"))
    elif name == "unknown view":
        model.function = lambda y, gamma: y.view(-1, 4) * gamma
    assert refused(FUSE, traced(model)) == code


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
