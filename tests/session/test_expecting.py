"""Tests of passes in canonical text."""

import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import from_pattern
from fxlab.testing import expect, expect_no_match
from fxlab.transformations.patterns.canonical_text import canonical_text

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions
X = torch.randn(2, 4)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout()

    def forward(self, x):
        y = self.drop(self.linear(x))
        return torch.sigmoid(y) * y + 1


TO_SILU = from_pattern(
    lambda x: x * torch.sigmoid(x), lambda x: F.silu(x), name="to-silu", preserves_computation=True
)
TEXT = """
    %0 = linear(x, bias=linear.bias, weight=linear.weight)
    %1 = silu(%0)
    %2 = add(%1, 1)
    return {}
"""


def test_the_text_is_the_same_in_every_dialect():
    model = Gated().eval()
    program = torch.export.export(model, (X,))
    graphs = [
        fxlab.symbolic_trace(model, X),
        fxlab.from_exported(program),
        fxlab.from_exported(program.run_decompositions()),
    ]
    texts = {canonical_text(TO_SILU(graph)).replace("return (%2)", "return %2") for graph in graphs}
    assert texts == {textwrap.dedent(TEXT.format("%2")).strip()}


def test_the_expected_text_is_compared():
    expect(TO_SILU, Gated().eval(), X, TEXT.format("%2"))
    with pytest.raises(AssertionError, match="makes another graph"):
        expect(TO_SILU, Gated().eval(), X, TEXT.format("%1"))
    with pytest.raises(TypeError, match="expected: expected a text"):
        expect(TO_SILU, Gated().eval(), X, None)


def test_a_broken_promise_is_an_error():
    class Broken(fxlab.Transformation):
        preserves_computation = True

        def transform(self, graph_module):
            for node in graph_module.graph.find_nodes(op="call_function", target=torch.sigmoid):
                node.target = torch.tanh
                self.mark_as_transformed(node)
            return graph_module

    text = """
        %0 = linear(x, bias=linear.bias, weight=linear.weight)
        %1 = tanh(%0)
        %2 = mul(%0, %1)
        %3 = add(%2, 1)
        return %3
    """
    with pytest.raises(AssertionError, match="promises to preserve results"):
        expect(Broken(), Gated().eval(), X, text)


def test_no_match_has_a_reason():
    class Kept(nn.Module):
        def forward(self, x):
            gate = torch.sigmoid(x)
            return gate * x + gate

    expect_no_match(TO_SILU, Kept(), X, code="other-users")
    expect_no_match(TO_SILU, Kept(), X)
    with pytest.raises(AssertionError, match=r"no reason with the code 'differs'[\s\S]*other-users"):
        expect_no_match(TO_SILU, Kept(), X, code="differs")
    with pytest.raises(AssertionError, match="applies to sigmoid, mul"):
        expect_no_match(TO_SILU, Gated().eval(), X)
