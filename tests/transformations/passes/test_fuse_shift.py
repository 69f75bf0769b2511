"""FuseShift: which sums go into the bias of the layer before, and that they come out exactly."""

import copy

import pytest
import torch
from exactness import COPIES, captured, check, check_copies, refused, snapshot, traced
from torch import nn

import fxlab
from fxlab import FuseShift

FUSE = FuseShift()

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Head(nn.Module):
    """A layer, and a bias that is kept beside it."""

    def __init__(self, function=lambda y, beta: y + beta, layer=None, shape=(6,)):
        super().__init__()
        self.layer = nn.Linear(4, 6) if layer is None else layer
        self.beta, self.function = nn.Parameter(torch.randn(shape)), function

    def forward(self, x):
        return self.function(self.layer(x), self.beta)


SHIFTED = {
    "no bias": (nn.Linear(4, 6, bias=False), (3, 4), (6,), lambda y, beta: beta + y),
    "bias": (nn.Linear(4, 6), (3, 4), (6,), lambda y, beta: y - beta),
    "number": (nn.Linear(4, 6), (3, 4), (6,), lambda y, beta: y + 0.5),
    "number and no bias": (nn.Linear(4, 6, bias=False), (3, 4), (6,), lambda y, beta: y - 3),
    "one for all": (nn.Linear(4, 6), (2, 3, 4), (), lambda y, beta: y.transpose(1, 2) + beta),
    "conv": (nn.Conv2d(4, 6, 3, bias=False), (1, 4, 5, 5), (6, 1, 1), lambda y, beta: y + beta),
    "transposed": (nn.ConvTranspose1d(4, 6, 2), (2, 4, 5), (6,), lambda y, beta: y + beta[:, None]),
}


@pytest.mark.parametrize("source", ["trace", "export", "decomposed"])
@pytest.mark.parametrize("name", SHIFTED)
def test_what_is_added_goes_into_the_bias_and_comes_out(name, source):
    layer, size, shape, function = SHIFTED[name]
    model, x = Head(function, copy.deepcopy(layer), shape).eval(), torch.randn(size)
    graph = captured(source, model, x)
    weight = graph.get_parameter("layer.weight")
    marked = 2 if name == "one for all" else 1
    fused = check(FUSE, model, x, marked=marked, gm=graph, tolerance=1e-5)
    assert fused.get_parameter("layer.weight") is weight
    assert fused.get_parameter("layer.bias").shape == (6,)


def test_a_new_bias_is_trained_if_what_was_added_is():
    without = nn.Linear(4, 6, bias=False)
    assert FUSE(traced(Head(layer=without))).layer.bias.requires_grad
    assert not FUSE(traced(Head(lambda y, beta: y + 1, without))).layer.bias.requires_grad


@pytest.mark.parametrize("function", [lambda y, beta: y + beta, lambda y, beta: y - beta])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_written", [False, True], ids=["", "what was added is written too"])
def test_a_bias_that_was_trained_goes_back_to_where_there_is_one(bias, function, is_written):
    model, x = Head(function, nn.Linear(4, 6, bias=bias)), torch.randn(3, 4)
    gm = FUSE(traced(model))
    with torch.no_grad():
        gm.layer.bias.mul_(1.5)
        if is_written:
            gm.beta.add_(1)
    expected = gm(x)
    torch.testing.assert_close(FUSE(gm, reverse=True)(x), expected)
    assert gm.beta is model.beta


def test_a_trained_bias_with_no_place_is_named():
    model = Head(lambda y, beta: y + 1, nn.Linear(4, 6, bias=False))
    gm = FUSE(traced(model))
    with torch.no_grad():
        gm.layer.bias.mul_(1.5)
    with pytest.warns(UserWarning, match="cannot bring"):
        FUSE(gm, reverse=True)


def test_what_is_only_cast_comes_back_cast():
    model = Head()
    expected = copy.deepcopy(model).double()
    gm = FUSE(FUSE(traced(model)).double(), reverse=True)
    for name in ("layer.weight", "layer.bias", "beta"):
        assert torch.equal(gm.get_parameter(name), expected.get_parameter(name))


@pytest.mark.parametrize("kind", COPIES)
def test_copies_can_be_reversed(kind):
    check_copies(FUSE, traced(Head(layer=nn.Linear(4, 6, bias=False))), COPIES[kind], ["layer"])


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda y, beta: (y + beta) * y, "other-users"),
        (lambda y, beta: (y + beta).long(), "rounded-later"),
        (lambda y, beta: y + float("inf"), "not-finite"),
        (lambda y, beta: (beta.add_(1), y + beta)[1], "written-in-place"),
        (lambda y, beta: y + beta[:, None], "not-per-channel"),
    ],
)
def test_what_would_change_the_function_is_refused(function, code):
    graph = fxlab.symbolic_trace(Head(function, nn.Linear(4, 6)), (torch.randn(6, 4),))
    assert refused(FUSE, graph) == code


@pytest.mark.parametrize(
    "function",
    [lambda y, beta: y + y, lambda y, beta: 2 - y, lambda y, beta: y.relu() + 2, lambda y, beta: y * 2],
)
def test_other_arithmetic_is_no_candidate(function):
    assert FUSE.candidates(traced(Head(function))) == []


def test_a_scale_and_a_shift_come_out_in_any_order():
    model, x = Head(lambda y, beta: (y + 1) * beta + beta), torch.randn(3, 4)
    scale = fxlab.FuseScale()
    gm = fxlab.symbolic_trace(model, (x,))
    before = snapshot(gm)
    for pass_ in (FUSE, scale, FUSE):
        pass_(gm)
    assert len(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)) == 0
    torch.testing.assert_close(gm(x), model(x))
    for pass_ in (FUSE, scale):
        pass_(gm, reverse=True)
    assert snapshot(gm).nodes == before.nodes
