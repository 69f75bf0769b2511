"""Arithmetic on sizes that is remembered changes nothing but the time that it takes."""

from contextlib import nullcontext

import pytest
import sympy
import torch
import zoo
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fxlab
from fxlab import symbolic_trace
from fxlab.tracing.recording import recorder
from fxlab.tracing.shapes import asked_sizes
from fxlab.tracing.shapes.asked_sizes import arithmetic_remembered


class LearnsLate(nn.Module):
    """Finds out that two sizes are equal after it has computed with both."""

    def forward(self, x, y):
        before = x.new_zeros(x.shape[0] * 2 + 1, y.shape[0] * 2 + 1)
        together = x + y
        after = x.new_zeros(x.shape[0] * 2 + 1, y.shape[0] * 2 + 1)
        return before, together, after


@pytest.fixture(
    params=[
        "bert",
        *(pytest.param(name, marks=pytest.mark.weekly) for name in ("llama", "t5")),
        "learns late",
    ]
)
def model_and_inputs(request):
    if request.param == "learns late":
        return LearnsLate(), {"x": torch.randn(4), "y": torch.randn(4)}
    model = zoo.tiny_of_type(request.param)
    return model, fxlab.example_inputs(model)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_the_same_graph_is_recorded(model_and_inputs, monkeypatch):
    model, inputs = model_and_inputs
    remembered = symbolic_trace(model, inputs)
    monkeypatch.setattr(recorder, "arithmetic_remembered", lambda sizes, work: nullcontext())
    computed = symbolic_trace(model, inputs)
    assert remembered.code == computed.code
    assert remembered.meta["trace"] == computed.meta["trace"]
    for ours, theirs in zip(remembered.graph.nodes, computed.graph.nodes, strict=True):
        assert str(ours.meta.get("val")) == str(theirs.meta.get("val"))


def test_what_is_learnt_about_a_size_is_in_what_is_computed_next():
    nodes = symbolic_trace(LearnsLate(), (torch.randn(4), torch.randn(4))).graph.nodes
    before, after = (node for node in nodes if node.target == "new_zeros")
    assert before.meta["val"].shape[0].node._expr != before.meta["val"].shape[1].node._expr
    assert after.meta["val"].shape[0].node.expr == after.meta["val"].shape[1].node.expr


def test_nothing_is_remembered_of_another_environment():
    ours, others = ShapeEnv(), ShapeEnv()
    mine, theirs = ours.create_unbacked_symint(), others.create_unbacked_symint()
    with arithmetic_remembered(ours):
        assert (mine + 1).node is (mine + 1).node
        assert (theirs + 1).node is not (theirs + 1).node
        assert (theirs + 1).node.shape_env is others


def test_large_questions_count_as_costly_and_small_ones_do_not():
    height, width = sympy.symbols("h w", positive=True, integer=True)
    small = sympy.Eq(height * 3, width + 2)
    large = sympy.Eq(sum((height + step) * (width + step) for step in range(20)), 5)
    work = asked_sizes.SizeWork()
    work.add_question(small)
    assert work.operations == 0
    work.add_question(large)
    assert work.of_symbol[height] == work.of_symbol[width] == work.operations > large.count_ops()
