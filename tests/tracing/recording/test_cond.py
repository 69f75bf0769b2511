"""Branches that a model hands to ``torch.cond``."""

import pickle

import pytest
import torch
from torch import nn

import fxlab
from fxlab import TraceError, symbolic_trace


class Chooses(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout()
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def chosen(model, x):
    return torch.cond(x.sum() > 0, model.linear, lambda y: y * 2, (x,))


def nested(model, x):
    return torch.cond(x.sum() > 0, lambda y: chosen(model, y - y.max()), lambda y: y * y.shape[0], (x,))


CASES = {
    "parameters": chosen,
    "closures": lambda m, x: torch.cond(x.sum() > 0, lambda: m.linear(x + 1), lambda: x.sin(), ()),
    "structures": lambda m, x: torch.cond(
        x.sum() > 0, lambda y: {"a": y + 1, "b": (m.linear(y),)}, lambda y: {"a": -y, "b": (y * 2,)}, (x,)
    ),
    "sizes": lambda m, x: torch.cond(
        x.sum() > 0, lambda y: y * y.shape[0], lambda y: y + torch.ones(y.shape[0], 1), (x,)
    ),
    "constants": lambda m, x: torch.cond(x.sum() > 0, lambda y: y + torch.arange(4), lambda y: y * 3, (x,)),
    "branches in branches": nested,
    "one after the other": lambda m, x: chosen(m, chosen(m, x) - 1),
    "maps inside": lambda m, x: torch.cond(x.sum() > 0, torch.vmap(m.linear), lambda y: y * 2, (x,)),
    "its own tensors written": lambda m, x: torch.cond(
        x.sum() > 0, lambda y: y.exp().add_(1), torch.exp, (x,)
    ),
}
FURTHER = "closures", "constants", "one after the other", "maps inside"


def gradient(module, model, x):
    outputs = torch.utils._pytree.tree_leaves(module(x))
    if not outputs[-1].requires_grad:
        return None
    (found,) = torch.autograd.grad(sum(out.sum() for out in outputs), model.linear.weight, allow_unused=True)
    return torch.zeros(()) if found is None else found


@pytest.mark.often(2)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch.compile, which eager torch calls
@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.weekly if each in FURTHER else ()) for each in CASES]
)
def test_both_branches_are_recorded_for_any_size(case):
    torch.manual_seed(0)
    model = Chooses(CASES[case]).eval()
    traced = symbolic_trace(model, torch.randn(3, 4))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert traced.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    again = pickle.loads(pickle.dumps(traced))
    for module, x in ((traced, torch.rand(5, 4)), (again, -torch.rand(2, 4))):
        actual, expected = (torch.utils._pytree.tree_leaves(each(x)) for each in (module, model))
        assert all(map(torch.equal, actual, expected))
        assert [tensor.requires_grad for tensor in actual] == [tensor.requires_grad for tensor in expected]
        ours, theirs = gradient(traced, model, x), gradient(model, model, x)
        assert (ours is None) == (theirs is None)
        assert ours is None or bool((ours == theirs).all())


def test_passes_rewrite_branches_and_are_judged():
    model = Chooses(
        lambda m, x: torch.cond(x.sum() > 0, lambda y: m.linear(y) / 2, lambda y: y / 4, (x,))
    ).eval()
    session = fxlab.Session(model, torch.rand(3, 4))
    session.apply("change-true-div-to-mul-by-inverse")
    assert len(fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)) == 2
    assert session.verdict().agrees


def test_a_condition_on_a_size_is_decided_as_by_python():
    model = Chooses(lambda m, x: torch.cond(x.shape[0] > 2, m.linear, lambda y: y * 2, (x,)))
    traced = symbolic_trace(model, torch.randn(3, 4))
    assert not traced.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    with pytest.raises(AssertionError, match=r"x\.shape\[0\] > 2"):
        traced(torch.randn(2, 4))


def test_a_branch_that_reads_the_mode_holds_for_this_mode():
    model = Chooses(
        lambda m, x: torch.cond(x.sum() > 0, lambda y: m.dropout(y + 1), lambda y: y * 2, (x,))
    ).eval()
    traced = symbolic_trace(model, torch.rand(3, 4))
    with pytest.raises(AssertionError, match="evaluation mode"):
        traced.train()(torch.rand(3, 4))


@pytest.mark.often(3)
@pytest.mark.parametrize(
    ("branch", "words"),
    [
        (lambda y: y, "a tensor that is there already"),
        (lambda y: y.add_(1) * 2, "writes into a tensor that it has not made"),
        (lambda y: y[:1] * 1, "tensors of other shapes"),
        (lambda y: y.double(), "tensors of other shapes or dtypes"),
        (lambda y: 1, "something that is no tensor"),
        (lambda y: y * (2 if y.max() > 1 else 1), "reads data"),
    ],
)
def test_what_torch_refuses_or_a_graph_cannot_check_is_refused(branch, words):
    model = Chooses(lambda m, x: torch.cond(x.sum() > 0, branch, lambda y: y * 2, (x,)))
    with pytest.raises(TraceError, match=words):
        symbolic_trace(model, torch.randn(3, 4), check=False)
