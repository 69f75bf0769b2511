"""Tests of passes in canonical text."""

import runpy
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


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("CHECK: silu\nCHECK: return", None),
        ("CHECK: [[A:%[0-9]+]] = silu\nCHECK: add([[A]], 1)", None),
        ("CHECK: [[A:%[0-9]+]] = linear\nCHECK: add([[A]], 1)", "is not found after line 1"),
        ("CHECK: linear\nCHECK-NOT: sigmoid\nCHECK: add", None),
        ("CHECK: linear\nCHECK-NOT: silu\nCHECK: add", "CHECK-NOT: silu is found"),
        ("CHECK: add\nCHECK: silu", "is not found after line 3"),
        ("CHECK-NOT: linear", "CHECK-NOT: linear is found"),
    ],
)
def test_parts_are_checked_in_their_order(lines, message):
    if message is None:
        expect(TO_SILU, Gated().eval(), X, lines)
        return
    with pytest.raises(AssertionError, match=message):
        expect(TO_SILU, Gated().eval(), X, lines)


def test_a_name_that_nothing_captured_is_refused():
    with pytest.raises(ValueError, match="is used before"):
        expect(TO_SILU, Gated().eval(), X, "CHECK: [[A]]")


def test_a_broken_promise_is_an_error():
    class Broken(fxlab.Transformation):
        preserves_computation = True

        def transform(self, graph_module):
            for node in graph_module.graph.find_nodes(op="call_function", target=torch.sigmoid):
                node.target = torch.tanh
                self.mark_as_transformed(node)
            return graph_module

    with pytest.raises(AssertionError, match="promises to preserve results"):
        expect(Broken(), Gated().eval(), X, "CHECK: tanh")


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


def test_an_environment_variable_writes_the_text_to_the_test(tmp_path, monkeypatch):
    file = tmp_path / "test_mine.py"
    file.write_text(
        textwrap.dedent(
            '''
            import torch
            import fxlab

            # A form feed ends no line: \f
            class Twice(torch.nn.Module):
                def forward(self, x):
                    return torch.relu(x) + 0.5 * x

            def test_it():
                fxlab.testing.expect(fxlab.RemoveDeadCode(), Twice(), torch.ones(2), """
                    nothing
                """)

            test_it()
            '''
        )
    )
    with pytest.raises(AssertionError):
        runpy.run_path(str(file))
    with monkeypatch.context() as patch:
        patch.setenv("FXLAB_UPDATE_EXPECT", "1")
        runpy.run_path(str(file))
    assert "%2 = add(%0, %1)" in file.read_text()
    runpy.run_path(str(file))
