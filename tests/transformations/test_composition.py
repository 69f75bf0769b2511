"""compose: several transformations as one, of any kind, in any nesting, all or nothing."""

import pytest
import torch
from exactness import assert_close, assert_equals, assert_is, snapshot, traced
from torch import fx, nn

from fxlab import (
    ChangeTrueDivToMulByInverse,
    DeepCopy,
    FuseBiasInLinear,
    LintAndRecompile,
    MergeLinears,
    ReversibleTransformation,
    Transformation,
    compose,
)


class Attention(nn.Module):
    """Something for each of three passes."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.out = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.query(x) * self.key(x) / 2.5)


class ReluToTanh(Transformation):
    """Cannot be taken back."""

    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.relu):
            node.target = torch.tanh
            self.mark_as_transformed(node)
        return graph_module


class Fails(ReversibleTransformation):
    """Changes all that it can reach, and then raises."""

    preserves_computation = True

    def transform(self, graph_module):
        for node in reversed(graph_module.graph.nodes):
            if node.op == "call_function":
                node.args = (node.args[0], 0.0)
                self.mark_as_transformed(node)
        graph_module.graph.eliminate_dead_code()
        graph_module.add_module("new", nn.ReLU())
        graph_module.out.requires_grad_(False).train(not graph_module.training)
        del graph_module.out.bias
        graph_module.out.register_forward_hook(lambda module, args, out: out * 2)
        graph_module.meta["note"] = "changed"
        raise KeyError("on purpose")

    reverse = transform


class Counts(Transformation):
    """Counts how often a graph is linted and a module recompiled while it is in use."""

    def __init__(self, monkeypatch):
        self.calls = []
        for cls, name in ((fx.Graph, "lint"), (fx.GraphModule, "recompile")):
            monkeypatch.setattr(cls, name, self._counted(name, getattr(cls, name)))

    def _counted(self, name, method):
        def counted(*args):
            self.calls.append(name)
            return method(*args)

        return counted

    def transform(self, graph_module):
        self.calls.clear()
        return graph_module


PASSES = (MergeLinears(), FuseBiasInLinear(), ChangeTrueDivToMulByInverse())


def names(nodes):
    return [node.name for node in nodes]


def test_the_parts_are_applied_first_to_last_and_taken_back_last_to_first():
    seen = []

    class Noted(ReversibleTransformation):
        def __init__(self, number):
            self.number = number

        def transform(self, graph_module):
            seen.append(self.number)
            return graph_module

        def reverse(self, graph_module):
            seen.append(-self.number)
            return graph_module

    composition = compose(Noted(1), Noted(2), Noted(3))
    composition(composition(traced(Attention())), reverse=True)
    assert seen == [1, 2, 3, -3, -2, -1]


def test_a_composition_of_none_changes_nothing():
    gm = traced(Attention())
    before = snapshot(gm)
    assert compose()(gm) is gm
    assert compose()(gm, reverse=True) is gm
    assert_is(gm, before)
    assert (compose().name, compose().get_transformed_nodes(gm)) == ("nothing", [])


def test_the_transformed_nodes_are_those_of_all_parts_in_the_order_of_the_graph():
    composition = compose(ChangeTrueDivToMulByInverse(), MergeLinears(), FuseBiasInLinear())
    gm = composition(traced(Attention()))
    nodes = composition.get_transformed_nodes(gm)
    assert names(nodes) == ["query_key_merged", "truediv", "out"]
    assert [node for node in gm.graph.nodes if composition.transformed(node)] == nodes


def test_the_parts_know_their_nodes_and_can_be_taken_back_alone():
    gm = compose(*PASSES)(traced(Attention()))
    once = snapshot(compose(PASSES[0], PASSES[2])(traced(Attention())))
    assert names(PASSES[2].get_transformed_nodes(gm)) == ["truediv"]
    FuseBiasInLinear()(gm, reverse=True)
    assert_equals_up_to_weights(gm, once)
    assert names(compose(*PASSES).get_transformed_nodes(gm)) == ["query_key_merged", "truediv"]


def assert_equals_up_to_weights(gm, before):
    now = snapshot(gm)
    assert now.nodes == before.nodes
    assert [(name, cls) for name, _, cls, _ in now.modules] == [
        (name, cls) for name, _, cls, _ in before.modules
    ]


def test_composing_is_associative():
    a, b, c = PASSES
    assert compose(compose(a, b), c) == compose(a, compose(b, c)) == compose(a, b, c)
    assert compose(compose(compose(a)), compose(), compose(b, c)).signature == compose(a, b, c).signature


def test_an_irreversible_composition_says_so_when_asked_to_reverse():
    composition = compose(MergeLinears(), ReluToTanh())
    gm = composition(traced(Attention()))
    after = snapshot(gm)
    with pytest.raises(TypeError, match="cannot be reversed"):
        composition(gm, reverse=True)
    assert_is(gm, after)


@pytest.mark.parametrize("flag", ["preserves_computation", "copies_on_write"])
def test_a_composition_promises_what_all_its_parts_promise(flag):
    assert getattr(compose(*PASSES, DeepCopy(), LintAndRecompile()), flag)
    assert not getattr(compose(MergeLinears(), ReluToTanh()), flag)


@pytest.mark.parametrize(
    "composition",
    [
        compose(*PASSES, inplace=False),
        compose(compose(*PASSES, inplace=False)),
        compose(compose(*PASSES), inplace=False),
        compose(compose(PASSES[0], inplace=False), compose(*PASSES[1:], inplace=False)),
        compose(compose(PASSES[0], inplace=False), *PASSES[1:], inplace=False),
    ],
    ids=str,
)
def test_a_composition_that_is_not_in_place_leaves_the_given_module_alone(composition):
    model, x = Attention(), torch.randn(2, 6)
    gm = traced(model)
    before = snapshot(gm)
    transformed = composition(gm)
    assert_is(gm, before)
    assert names(composition.get_transformed_nodes(gm)) == []
    assert names(composition.get_transformed_nodes(transformed)) == ["query_key_merged", "truediv", "out"]
    assert not {id(p) for p in gm.parameters()} & {id(p) for p in transformed.parameters()}
    assert_close(transformed(x), model(x))
    after = snapshot(transformed)
    restored = composition(transformed, reverse=True)
    assert_is(transformed, after)
    assert_equals(restored, before)
    assert_is(gm, before)


def test_what_goes_before_a_composition_that_copies_is_done_in_place():
    gm = traced(Attention())
    composition = compose(ChangeTrueDivToMulByInverse(), compose(MergeLinears(), inplace=False))
    transformed = composition(gm)
    assert names(composition.get_transformed_nodes(gm)) == ["truediv"]
    assert names(composition.get_transformed_nodes(transformed)) == ["query_key_merged", "truediv"]


def test_lint_and_recompile_happen_once(monkeypatch):
    counts = Counts(monkeypatch)
    compose(counts, *PASSES, compose(*PASSES))(traced(Attention()))
    assert counts.calls == ["lint", "recompile"]


@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize("applied_before", [(), PASSES[:1], PASSES], ids=len)
def test_a_part_that_raises_leaves_module_and_marks_as_they_were(position, applied_before):
    model, x = Attention(), torch.randn(2, 6)
    gm = compose(*applied_before)(traced(model))
    before = snapshot(gm)
    parts = [*PASSES[:position], Fails(), *PASSES[position:]]
    with pytest.raises(KeyError, match="on purpose"):
        compose(*parts)(gm)
    assert_is(gm, before)
    assert_close(gm(x), model(x))
    assert names(Fails().get_transformed_nodes(gm)) == []
    compose(*applied_before)(gm, reverse=True)
    assert_is(gm, snapshot(traced(model)))


def test_a_part_that_raises_on_reversal_leaves_module_and_marks_as_they_were():
    model, x = Attention(), torch.randn(2, 6)
    gm = compose(*PASSES)(traced(model))
    before = snapshot(gm)
    with pytest.raises(KeyError, match="on purpose"):
        compose(PASSES[0], Fails(), *PASSES[1:])(gm, reverse=True)
    assert_is(gm, before)
    assert_close(gm(x), model(x))
    compose(*PASSES)(gm, reverse=True)
    assert_is(gm, snapshot(traced(model)))


def test_a_part_that_puts_in_a_new_graph_and_raises_leaves_the_old_one():
    class Rebuilds(Fails):
        def transform(self, graph_module):
            graph_module.graph = fx.Graph()
            return super().transform(graph_module)

    gm = traced(Attention())
    before = snapshot(gm)
    with pytest.raises(KeyError, match="on purpose"):
        compose(MergeLinears(), Rebuilds())(gm)
    assert_is(gm, before)


@pytest.mark.parametrize("given", [None, 3, nn.Linear])
def test_something_else_than_a_pass_is_refused(given):
    with pytest.raises(TypeError, match=r"passes: expected a transformation"):
        compose(MergeLinears(), given)


def test_something_else_than_a_graph_module_is_refused():
    with pytest.raises(TypeError, match=r"torch\.fx\.GraphModule.*Attention"):
        compose(*PASSES)(Attention())
