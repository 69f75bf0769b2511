"""Passes in the bodies of higher-order operators, and in graphs that are called as modules."""

import copy
from typing import Any

import pytest
import torch
from exactness import COPIES, assert_equals, assert_is, check, reasons, snapshot
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    EliminateCommonSubexpressions,
    FuseBiasInLinear,
    MergeLinears,
    RemoveDeadCode,
    RemoveIdentities,
    Session,
    bisect,
    compose,
    from_exported,
)
from fxlab.models.graph_modules.bodies import graphs_of

# What torch says of its own code when it writes a program down.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]


class Branches(nn.Module):
    """A choice of two branches, which have something to do for several passes."""

    def forward(self, x):
        def first(x):
            twice = x.sin() + x.sin()
            x.cos()
            return F.dropout(twice, 0.5, False) / 4

        def second(x):
            return torch.cond(x.sum() > 3, lambda x: x.exp() / 2 + x.exp(), lambda x: x / 8, (x,))

        return torch.cond(x.sum() > 0, first, second, (x.relu() / 2,)) / 2


def loop(x):
    def is_less(count, _):
        return count < 3

    def body(count, x):
        return count + 1, (x.sin() + x.sin()) / 2

    return torch._higher_order_ops.while_loop(is_less, body, (torch.tensor(0), x))


def scanned(x):
    def add(total, value):
        return total + value / 2 + value / 2, (total.sin() * total.sin())

    return torch._higher_order_ops.scan(add, x[0].clone(), x)


def mapped(x):
    return torch._higher_order_ops.map(lambda row, by: (row * by / 2) * (row * by / 2), x, x.sum(0))


class OfFunction(nn.Module):
    """A module of a function."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def exported(model: nn.Module, x: torch.Tensor) -> fx.GraphModule:
    return from_exported(torch.export.export(model, (x,), strict=False))


@pytest.fixture(scope="module")
def branches() -> fx.GraphModule:
    return exported(Branches(), torch.ones(2, 3))


@pytest.fixture
def gm(branches) -> fx.GraphModule:
    return copy.deepcopy(branches)


INPUTS = [torch.ones(2, 3), -torch.ones(2, 3), torch.full((2, 3), 9.0)]
INNER = "false_graph_0/true_graph_0/"


@pytest.mark.parametrize(
    ("pass_", "marked"),
    [(ChangeTrueDivToMulByInverse(), 5), (EliminateCommonSubexpressions(), 2), (RemoveIdentities(), 1)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_passes_rewrite_bodies_and_give_them_back(gm, pass_, marked):
    check(pass_, Branches(), INPUTS[0], marked=marked, gm=gm)
    for x in INPUTS:
        assert torch.equal(gm(x), Branches()(x))


def test_dead_code_goes_from_bodies(gm):
    check(RemoveDeadCode(), Branches(), INPUTS[0], marked=0, gm=gm, removes=True)
    assert "cos" not in {node.name for node in gm.true_graph_0.graph.nodes}


@pytest.mark.often(1)
@pytest.mark.parametrize("function", [loop, scanned, mapped], ids=lambda function: function.__name__)
def test_bodies_of_loops_are_rewritten(function):
    x = torch.rand(3, 3)
    gm = exported(OfFunction(function), x)
    passes = compose(EliminateCommonSubexpressions(), ChangeTrueDivToMulByInverse())
    before, code = snapshot(gm), gm.code
    expected = function(x)
    passes(gm)
    assert passes.get_transformed_nodes(gm)
    torch.testing.assert_close(gm(x), expected)
    passes(gm, reverse=True)
    assert_is(gm, before)
    assert gm.code == code


def test_a_graph_that_is_called_as_a_module_is_rewritten():
    class Tracer(fx.Tracer):
        def is_leaf_module(self, module, path):
            return isinstance(module, fx.GraphModule) or super().is_leaf_module(module, path)

    inner = fx.symbolic_trace(OfFunction(lambda x: x.sin() / 2 + x.sin()))
    outer = nn.Sequential(inner, nn.ReLU())
    gm = fx.GraphModule(outer, Tracer().trace(outer))
    check(EliminateCommonSubexpressions(), outer, INPUTS[0], marked=1, gm=gm)
    assert EliminateCommonSubexpressions().rewrites(gm)[0].candidate == ("0/sin_1",)


def test_candidates_in_bodies_are_excluded_and_included_in_a_session(branches):
    session = Session(branches, INPUTS[0])
    before = snapshot(session.original)
    session.apply("change-true-div-to-mul-by-inverse")
    assert str(session.changes("change-true-div-to-mul-by-inverse")) == "5 rewrites: 5 divs become 5 muls"
    session.exclude("change-true-div-to-mul-by-inverse", f"{INNER}div_1")
    assert fxlab.rewriting.transformed_nodes(
        session.graph_module, original=session.original
    ).index.tolist() == [*("div", "true_graph_0/div_1", "false_graph_0/false_graph_0/div_1", "div_1")]
    assert session._internals.excluded("change-true-div-to-mul-by-inverse") == ((f"{INNER}div_1",),)
    assert session.verdict().agrees
    session.include("change-true-div-to-mul-by-inverse", f"{INNER}div_1")
    assert (
        f"{INNER}div_1"
        in fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).index
    )
    session.revert()
    assert session.graph_module is session.original
    assert_is(session.original, before)


def test_a_mistake_in_a_body_is_found_by_its_rewrite(branches):
    class Careless(ChangeTrueDivToMulByInverse):
        def rewrite(self, candidate, edit):
            node = super().rewrite(candidate, edit)
            if node.args[1] == 0.25:
                node.args = (node.args[0], 0.3)
            return node

    session = Session(branches, INPUTS[0], passes=[Careless()])
    session.apply("careless")
    assert not session.verdict().agrees
    found = bisect(session)
    assert found.rewrites == ("true_graph_0/div_1",)
    assert found.divergence.node == "cond"


def test_a_body_that_fails_leaves_all_graphs_as_they_were(gm):
    class Failing(ChangeTrueDivToMulByInverse):
        def rewrite(self, candidate, edit):
            if len(edit.graph_module.graph.nodes) < 4:  # the innermost body
                raise RuntimeError("on purpose")
            return super().rewrite(candidate, edit)

    before = snapshot(gm)
    nodes = {prefix: [str(node) for node in body.graph.nodes] for prefix, body in graphs_of(gm).items()}
    with pytest.raises(RuntimeError, match="on purpose"):
        Failing()(gm)
    assert_is(gm, before)
    with pytest.raises(RuntimeError, match="on purpose"):
        compose(EliminateCommonSubexpressions(), Failing())(gm)
    restored = {prefix: [str(node) for node in body.graph.nodes] for prefix, body in graphs_of(gm).items()}
    assert restored == nodes


def test_a_body_does_not_come_to_return_its_input():
    def identity(x):
        return torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5, False), lambda x: x.sin(), (x,))

    gm = make_fx(identity, tracing_mode="real", pre_dispatch=True)(torch.ones(2))
    assert reasons(RemoveIdentities(), gm) == {"true_graph_0/dropout": "body-returns-input"}


class Experts(nn.Module):
    """Two branches with layers of their own, whose weights the call passes to both."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.other = (nn.Linear(3, 3) for _ in range(3))
        self.shared = nn.Linear(3, 3)

    def forward(self, x):
        def first(x):
            return self.query(x) * self.key(x) + self.shared(x)

        def second(x):
            return self.other(x) / 2 + self.shared(x)

        return torch.cond(x.sum() > 0, first, second, (x,))


class Looped(nn.Module):
    """A loop over a layer."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        def body(count, x):
            return count + 1, (self.query(x) * self.key(x)).tanh()

        zero = torch.zeros((), dtype=torch.int64)
        return torch._higher_order_ops.while_loop(lambda n, x: n < 3, body, (zero, x))[1]


@pytest.mark.weekly
@pytest.mark.parametrize("decomposed", [False, True], ids=["export", "decomposed"])
def test_weights_that_are_passed_to_a_body_are_replaced_and_come_back(decomposed):
    model, x = Experts().eval(), torch.randn(2, 3)
    program = torch.export.export(model, (x,), strict=False)
    gm = from_exported(program.run_decompositions() if decomposed else program)
    check(MergeLinears(), model, x, marked=2, gm=gm, tolerance=1e-6)
    MergeLinears()(gm, reverse=True)
    check(FuseBiasInLinear(), model, x, marked=4, gm=gm, tolerance=1e-6)
    assert torch.allclose(gm(-x), model(-x))
    FuseBiasInLinear()(gm, reverse=True)
    assert reasons(FuseBiasInLinear(), gm)[
        "true_graph_0/linear_2" if not decomposed else "true_graph_0/addmm_2"
    ]


@pytest.mark.weekly
def test_a_loop_merges_linears_and_gradients_stay():
    model, x = Looped().eval(), torch.randn(2, 3)
    gm = exported(model, x)
    session = Session(gm, x)
    session.apply("merge-linears")
    assert str(session.changes("merge-linears")) == "1 rewrite: 4 inputs and 2 linears become 1 linear"
    assert session.verdict().agrees


@pytest.mark.weekly
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_passes_that_change_what_is_passed_are_reversed_in_any_order(order):
    model, x = Experts().eval(), torch.randn(2, 3)
    gm = exported(model, x)
    before = snapshot(gm)
    passes = [MergeLinears(), FuseBiasInLinear(), EliminateCommonSubexpressions()]
    for pass_ in passes:
        pass_(gm)
        gm.recompile()
    torch.testing.assert_close(gm(x), model(x))
    torch.testing.assert_close(gm(-x), model(-x))
    for place in order:
        passes[place](gm, reverse=True)
        torch.testing.assert_close(gm(x), model(x))
        torch.testing.assert_close(gm(-x), model(-x))
    assert_is(gm, before)


@pytest.mark.often(1)
@pytest.mark.parametrize("kind", list(COPIES))
def test_copies_of_a_call_that_passes_other_weights_are_given_back(kind):
    x = torch.randn(2, 3)
    gm = exported(Experts().eval(), x)
    before = snapshot(gm)
    passes = compose(MergeLinears(), FuseBiasInLinear())
    other = COPIES[kind](passes(gm))
    assert torch.equal(other(x), gm(x))
    assert_equals(passes(other, reverse=True), before)
    assert_is(passes(gm, reverse=True), before)


def test_an_identity_whose_value_a_body_makes_goes_though_the_body_returns_it():
    def identity(x):
        return torch.cond(x.sum() > 0, lambda x: F.dropout(x.cos(), 0.5, False), lambda x: x.sin(), (x,))

    gm = RemoveIdentities()(make_fx(identity, tracing_mode="real", pre_dispatch=True)(torch.ones(2)))
    names = [node.name for node in gm.true_graph_0.graph.nodes]
    assert "cos" in names
    assert "dropout" not in names
