"""What a caller can tell of a call beside the numbers in its outputs."""

import torch
from torch import fx, nn

import fxlab
from fxlab import Session, from_callable, verdict


class Of(nn.Module):
    """Computes a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def judged(original, transformed, *inputs, **options):
    return verdict(Of(original), Of(transformed), inputs or (torch.arange(6.0).reshape(2, 3),), **options)


def test_a_verdict_and_an_evaluation_are_true_where_the_models_agree():
    same, other = judged(torch.sin, torch.sin), judged(torch.sin, torch.cos)
    assert same
    assert not other
    session = Session(fx.symbolic_trace(nn.ReLU()), torch.randn(3), passes=[from_callable(negated, name="n")])
    assert fxlab.evaluate(session, [torch.randn(3)])
    session.apply("n")
    assert not fxlab.evaluate(session, [torch.randn(3)])
    assert not session.known_verdict()
    assert session.known_verdict() is session.known_verdict()


def negated(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.neg, output.args),)
    graph_module.recompile()
