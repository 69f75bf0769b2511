"""Loops that a model hands to torch: ``while_loop``, ``scan`` and ``map``."""

import pickle

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as torch_map
from torch.utils._pytree import tree_leaves

import fxlab
from fxlab import TraceError, symbolic_trace

pytestmark = pytest.mark.filterwarnings(  # of torch.compile, which eager torch calls
    "ignore:The .grad attribute", "ignore:.torch.jit.script_method. is deprecated"
)


class Loops(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.function(self, x)


def counted(model, x, times=3):
    zero = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, y: i < times, lambda i, y: (i + 1, model.linear(y).tanh()), (zero, x))


def until_large(model, x):
    return while_loop(
        lambda state: state["y"].abs().sum() < 50 * x.shape[0],
        lambda state: ({"y": state["y"] * 2 + x.sum()},),
        ({"y": x},),
    )


def of_branches(model, x):
    def body(i, y):
        return i + 1, torch.cond(y.sum() > 0, model.linear, lambda z: z * 2, (y,))

    return while_loop(lambda i, y: i < 2, body, (torch.zeros((), dtype=torch.int64), x))[1]


def running(model, x):
    def combine(carry, row):
        total, product = carry
        return (total + row, product * 0.5 + model.linear(row)), {
            "mean": total / 2,
            "row": row * row.shape[0],
        }

    return scan(combine, (torch.zeros(4), torch.ones(4)), x)


def mapped(model, x):
    def body(rows, scale):
        return {"a": model.linear(rows["x"]) * scale, "b": (rows["y"].sum(),)}

    return torch_map(body, {"x": x, "y": x + 1}, torch.tensor(3.0))


CASES = {
    "a counter": counted,
    "none of the times": lambda m, x: counted(m, x, 0),
    "structures and sizes": until_large,
    "branches": of_branches,
    "a scan": running,
    "a scan along columns, backwards": lambda m, x: scan(
        lambda c, column: (c + column, (c * column).relu()), x[:, 0] * 0, x, dim=1, reverse=True
    ),
    "a map": mapped,
    "a scan in a map": lambda m, x: torch_map(
        lambda row: scan(lambda c, v: (c + v, m.linear.bias * c), row.sum() * 0, row)[1], x
    ),
}


def outputs(module, x):
    return tree_leaves(module(x))


FURTHER = "none of the times", "branches", "a scan along columns, backwards", "a scan in a map"
WEEKLY = [pytest.param(case, marks=pytest.mark.weekly) for case in FURTHER]


@pytest.mark.often(1)
@torch.no_grad()
@pytest.mark.parametrize("case", [*(case for case in CASES if case not in FURTHER), *WEEKLY])
def test_loops_are_recorded_for_any_size(case):
    torch.manual_seed(0)
    model = Loops(CASES[case])
    traced = symbolic_trace(model, torch.randn(3, 4))
    assert traced.meta["trace"].rung == "dynamic shapes"
    again = pickle.loads(pickle.dumps(traced))
    # Eager torch compiles a loop at each call.
    for module, x in ((traced, torch.rand(5, 4)), (again, -torch.rand(2, 4))):
        assert all(map(torch.equal, outputs(module, x), outputs(model, x)))


@pytest.mark.parametrize("loop", [running, pytest.param(mapped, marks=pytest.mark.weekly)])
def test_gradients_flow_through_loops(loop):
    torch.manual_seed(0)
    model = Loops(loop)
    traced = symbolic_trace(model, torch.randn(3, 4), check=False)
    x = torch.randn(5, 4)
    ours, theirs = (
        torch.autograd.grad(sum(out.sum() for out in outputs(module, x)), model.linear.weight)[0]
        for module in (traced, model)
    )
    assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@torch.no_grad()
def test_data_inside_of_a_loop_does_not_stand_for_all_turns():
    def body(i, y):
        return i + 1, y + torch.ones(4)

    def doubled(model, x):
        turns, y = while_loop(
            lambda i, y: i < x.sum(), body, (torch.zeros((), dtype=torch.int64), torch.ones(4))
        )
        return y * 2 if turns > 1 else y

    traced = symbolic_trace(Loops(doubled), torch.full((3,), 1.0))
    assert torch.equal(traced(torch.full((3,), 1.0)), torch.full((4,), 8.0))
    with pytest.raises(AssertionError):
        traced(torch.zeros(3))


@pytest.mark.weekly
@torch.no_grad()
def test_passes_rewrite_bodies_and_are_judged():
    model = Loops(lambda m, x: torch_map(lambda row: m.linear(row) / 2, x))
    session = fxlab.Session(model, torch.rand(3, 4))
    session.apply("change-true-div-to-mul-by-inverse")
    assert len(fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)) == 1
    assert session.verdict().agrees


def of_numbers(model, x):
    """Begin with a number of the size, keep another, and go on with those that come out."""
    times, kept, y = while_loop(
        lambda i, k, y: i < x.shape[0] * k,
        lambda i, k, y: (i + k // 2, k, model.linear(y) * i + x.shape[0]),
        (x.shape[0] - 1, 5, x),
    )
    return y * times + kept, times + 1


def of_numbers_and_data(model, x):
    return while_loop(lambda i, y: y.sum() < 50 + i, lambda i, y: (i + 1, y.abs() * 2 + i + 1), (0, x))


def set_anew(model, x):
    return while_loop(lambda i, y: i < 3, lambda i, y: (7, y * i), (0, x))


@pytest.mark.often(1)
@torch.no_grad()
@pytest.mark.parametrize("function", [of_numbers, of_numbers_and_data, set_anew])
def test_numbers_that_a_loop_carries_are_followed(function):
    model = Loops(function).eval()
    traced = symbolic_trace(model, torch.rand(3, 4), check=False)
    again = pickle.loads(pickle.dumps(traced))
    for module, rows in ((traced, 5), (again, 8)):
        x = torch.rand(rows, 4)
        actual, expected = module(x), model(x)
        assert [*map(type, actual)] == [*map(type, expected)]
        assert all(map(torch.equal, *(map(torch.as_tensor, values) for values in (actual, expected))))


def decides_on_a_number(model, x):
    times, y = while_loop(lambda i, y: i < 3, lambda i, y: (i + 2, y * 2), (0, x))
    return y if times > 3 else -y


def counting(body):
    zero = torch.zeros((), dtype=torch.int64)
    return lambda m, x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, body(y)), (zero, x))


@pytest.mark.often(3)
@torch.no_grad()
@pytest.mark.parametrize(
    ("function", "words"),
    [
        # Some versions of torch refuse it themselves.
        (counting(lambda y: y.add_(1) * 2), "writes into a tensor that it has not made|itself raises"),
        (decides_on_a_number, "number that torch's while_loop carries is decided on"),
        (
            lambda m, x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y.double()), (0, x)),
            "itself raises",
        ),
        (counting(lambda y: y.double()), "itself raises"),
        (counting(lambda y: y * (2 if y.max() > 1 else 1)), "itself raises"),
        (lambda m, x: scan(lambda c, row: (c.sum(), row * 2), x[0] * 1, x), "itself raises"),
    ],
)
def test_what_torch_refuses_or_a_graph_cannot_check_is_refused(function, words):
    with pytest.raises(TraceError, match=words):
        symbolic_trace(Loops(function), torch.randn(3, 4), check=False)
