"""Which pass, and which of its rewrites, breaks a model."""

import operator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    EliminateCommonSubexpressions,
    FuseBiasInLinear,
    MergeLinears,
    Session,
    Transformation,
    bisect,
)
from fxlab.validation.nodes.bisect import _first

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class CarelessMerge(MergeLinears):
    """Scales the weight of some merged linears."""

    wrong: tuple[str, ...] = ()

    def rewrite(self, candidate, edit):
        node = super().rewrite(candidate, edit)
        if any(name in candidate.nodes[0].name for name in self.wrong):
            with torch.no_grad():
                edit.graph_module.get_submodule(node.target).weight.mul_(1.1)
        return node


class MulToAdd(Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.mul):
            node.target = operator.add
            self.mark_as_transformed(node)
        return graph_module


class CutShapes(Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.add):
            node.target = torch.matmul
        return graph_module


def session_of(graph, inputs, *passes):
    session = Session(graph, inputs, passes=passes)
    for pass_ in passes:
        session.apply(pass_)
    return session


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        return torch.tanh(self.query(x) * self.key(x) / 2) + self.value(x)


class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layer = nn.Sequential(*(Block() for _ in range(count)))

    def forward(self, x):
        return {"last": self.layer(x)}


def traced(count):
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    return fxlab.symbolic_trace(Layers(count).eval(), x, check=False), x


@pytest.fixture(scope="module")
def three_layers():
    return traced(3)


@pytest.mark.weekly
def test_a_wrong_merge_in_layer_7_of_12_is_found_by_name_in_logarithmic_time():
    merge = CarelessMerge(wrong=("layer_7_",))
    session = session_of(*traced(12), ChangeTrueDivToMulByInverse(), merge, FuseBiasInLinear())
    found = bisect(session)
    assert found.pass_ == merge
    assert found.rewrites == ("query_key_value_merged_7",)
    assert found.divergence.node.startswith("layer_7_")
    assert found.runs <= 12
    assert str(found).startswith(
        "careless-merge makes it different, by rewriting query_key_value_merged_7: last: a different function"
    )
    assert "The first node that goes wrong is layer_7_" in str(found)


@settings(max_examples=4)
@given(st.sets(st.integers(1, 4), min_size=1))
def test_of_any_wrong_rewrites_the_first_is_found_and_can_be_excluded(wrong):
    merge, first = CarelessMerge(wrong=tuple(f"layer_{number}_" for number in wrong)), min(wrong)
    session = session_of(*traced(5), merge)
    found = bisect(session)
    assert found.rewrites == (f"query_key_value_merged_{first}",)
    assert found.divergence.node.startswith(f"layer_{first}_")
    session.exclude(merge, *found.rewrites)
    assert session.verdict().agrees is (len(wrong) == 1)


def test_correct_passes_break_nothing(three_layers):
    assert bisect(session_of(*three_layers, MergeLinears(), FuseBiasInLinear())) is None
    assert bisect(session_of(*three_layers)) is None


def test_a_pass_without_a_journal_is_named_with_its_node():
    class Model(nn.Module):
        def forward(self, x):
            return (x + 2) * 2

    graph = fx.symbolic_trace(Model())
    session = session_of(graph, torch.randn(5), MergeLinears(), MulToAdd())
    assert bisect(session, torch.zeros(5)) is None
    found = bisect(session)
    assert (found.pass_.name, found.rewrites) == ("mul-to-add", ())
    assert found.divergence.node == "mul"


def test_a_model_that_raises_is_different():
    class Model(nn.Module):
        def forward(self, x):
            return x + x.T

    session = session_of(fx.symbolic_trace(Model()), torch.randn(5, 5), CutShapes())
    session_that_raises = session_of(fx.symbolic_trace(Model()), torch.randn(5, 5), CutShapes(), MulToAdd())
    assert bisect(session).pass_.name == "cut-shapes"
    assert bisect(session_that_raises, torch.randn(1, 1)).pass_.name == "cut-shapes"
    raising = session_of(fx.symbolic_trace(lambda x: x + x[:1]), torch.randn(5, 4), CutShapes())
    assert "does not run" in bisect(raising).reason


def test_rewrites_that_mark_the_same_node_are_told_apart():
    @dataclass(frozen=True)
    class CarelessRemoval(EliminateCommonSubexpressions):
        def rewrite(self, candidate, edit):
            readers = super().rewrite(candidate, edit)
            if candidate.first.target is torch.cos:
                edit.change(candidate.first, target=torch.sin)
            return readers

    class Model(nn.Module):
        def forward(self, x):
            return torch.cat([torch.sin(x), torch.cos(x), torch.sin(x), torch.cos(x)])

    graph = fx.symbolic_trace(Model())
    session = session_of(graph, torch.randn(5), CarelessRemoval())
    first, second = session.applied[0].rewrites(session.graph_module)
    assert first.marked == second.marked == ("cat",)
    found = bisect(session)
    assert found.rewrites == ("cat",)
    assert found.divergence.node == "cos"


def test_a_pass_that_does_more_than_rewrite_candidates_is_named():
    class Careless(ChangeTrueDivToMulByInverse):
        def transform(self, graph_module):
            for node in graph_module.graph.find_nodes(op="call_function", target=operator.add):
                node.target = operator.sub
            return super().transform(graph_module)

    class Model(nn.Module):
        def forward(self, x):
            return (x + 2) / 3

    found = bisect(session_of(fx.symbolic_trace(Model()), torch.randn(5), Careless()))
    assert (found.pass_.name, found.rewrites) == ("careless", ())


def test_what_cannot_be_bisected_is_said_in_words(three_layers):
    with pytest.raises(TypeError, match=r"session: expected an fxlab\.Session, got 3"):
        bisect(3, torch.ones(1))
    session = session_of(*three_layers, CarelessMerge(wrong=("layer_1_",)))
    with pytest.raises(ValueError, match="original: the Layers does not run on these inputs"):
        bisect(session, {"pixels": torch.ones(1)})


@given(st.integers(1, 100), st.integers(0, 99))
def test_the_first_that_breaks_is_found(count, first):
    first %= count
    assert _first(range(count), lambda position: position >= first) == first


def test_outputs_without_numbers_are_no_agreement():
    class Spoils(nn.Module):
        def forward(self, x):
            return x / 2 * float("nan")

    passes = [fxlab.ChangeTrueDivToMulByInverse()]
    session = fxlab.Session(fx.symbolic_trace(Spoils()), torch.ones(2), passes=passes)
    session.apply("change-true-div-to-mul-by-inverse")
    with pytest.raises(ValueError, match="nothing can be compared: output: all 2 elements are NaN"):
        fxlab.bisect(session)


def test_nodes_are_named_as_in_the_session_whichever_rewrites_are_tried_alone():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(4, 4)

        def forward(self, x):
            return torch.nn.functional.gelu(self.dense(x))

    model = nn.Sequential(Block(), Block(), Block()).eval()
    with torch.no_grad():
        for block in (model[0], model[2]):
            block.dense.bias.zero_()
    gelu = torch.nn.functional.gelu
    without_bias = fxlab.from_pattern(
        lambda x, weight, bias: gelu(torch.nn.functional.linear(x, weight, bias)),
        lambda x, weight, bias: gelu(torch.nn.functional.linear(x, weight)),
        name="without-bias",
    )
    x = torch.randn(2, 4)
    session = session_of(fxlab.symbolic_trace(model, x), x, without_bias)
    found = bisect(session)
    assert found.rewrites == ("linear_1",)
    assert (found.divergence.node, found.divergence.module) == ("linear_1", "1")
    assert "is linear_1 in 1: " in str(found)
