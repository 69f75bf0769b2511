"""Tests of one place and new passes, which run by themselves."""

import operator
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab.session.written_test import written_pass


def gate(x):
    return x * torch.sigmoid(x)


def silu(x):
    return F.silu(x)


TO_SILU = fxlab.from_pattern(gate, silu, name="to-silu", preserves_computation=True)


class Halve(fxlab.rewriting.RewritePass):
    def match(self, facts):
        yield from facts.graph_module.graph.find_nodes(op="call_function", target=operator.truediv)

    def rewrite(self, node, edit):
        edit.change(node, target=operator.mul, args=(node.args[0], 0.5))
        return node


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(4, 6)
        self.conv, self.norm = nn.Conv1d(3, 5, 1), nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.a(x) + self.b(x)
        gate = torch.sigmoid(y)
        return torch.sigmoid(y) * y, gate * y + gate, self.norm(self.conv(x)).cos() / 2


@pytest.fixture(scope="module")
def session():
    passes = [fxlab.MergeLinears(), fxlab.FuseBatchNorm1dInConv1d(), TO_SILU, Halve()]
    return fxlab.Session(Model().eval(), torch.randn(2, 3, 4), passes=passes)


def run(text: str, folder: Path) -> dict:
    """Run the tests of a file in a namespace of its own."""
    file = folder / "test_it.py"
    file.write_text(text)
    names = runpy.run_path(str(file))
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    for test in tests:
        test()
    return names


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        ("merge-linears", "a", "%0 = linear("),
        ("fuse-batch-norm1d-in-conv1d", "norm", "conv1d("),
        ("to-silu", "mul", "%0 = silu("),
    ],
)
def test_a_rewrite_becomes_a_test_that_stands_alone(session, name, node, expected, tmp_path):
    state = torch.random.get_rng_state()
    text = session.as_test(name, node)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert expected in text
    names = run(text, tmp_path)
    head, _, tail = text.partition('"""')
    broken = f'{head}"""{tail.replace(expected, "x" + expected)}'
    assert "computed" in names
    with pytest.raises(AssertionError, match="makes another graph"):
        run(broken, tmp_path)


def test_it_is_the_same_when_the_pass_is_on_or_excludes_the_place(session):
    text = session.as_test("to-silu", session.node("mul"))
    session.apply("to-silu")
    (step,) = session.rewrites("to-silu")
    assert session.as_test("to-silu", step.candidate[0]) == text
    session.exclude("to-silu", "mul")
    assert session.as_test("to-silu", "mul") == text
    session.revert()


def test_a_near_miss_becomes_a_test_of_its_reason(session, tmp_path):
    (code,) = {*session.why_not("to-silu", "sigmoid").code}
    text = session.as_test("to-silu", "sigmoid")
    assert f'code="{code}"' in text
    run(text, tmp_path)
    with pytest.raises(AssertionError, match="gives no reason"):
        run(text.replace(code, "no-such"), tmp_path)
    with pytest.raises(ValueError, match=r"says nothing of cos in the stage below it\. session\.explain"):
        session.as_test("merge-linears", "cos")


def test_passes_are_written_as_they_are_imported_or_defined(session, tmp_path):
    assert "from test_written_test import Halve" in session.as_test("halve", "truediv")

    def doubled(x):
        return x + x

    def twice(x):
        return 2 * x

    local = fxlab.from_pattern(doubled, twice, name="local", preserves_computation=True)
    hidden = fxlab.from_pattern(lambda x: x + x, twice, name="hidden")
    sums = fxlab.Session(lambda x: (x + x).cos(), torch.ones(3), passes=[local, hidden])
    text = sums.as_test("local", "add")
    assert "def doubled(x):" in text
    run(text, tmp_path)
    text = sums.as_test("hidden", "add")
    assert "def test_hidden(pass_):" in text
    assert "def twice" not in text
    assert "It is defined in line" in " ".join(text.replace("#", "").split())


def test_nodes_that_do_not_stand_alone_are_tested_in_the_model(tmp_path):
    def pruned(x):
        x.cos().sin()
        return torch.relu(x)

    traced = torch.fx.symbolic_trace(pruned)
    session = fxlab.Session(traced, torch.ones(3), passes=[fxlab.RemoveDeadCode()])
    text = session.as_test("remove-dead-code", "cos")
    assert "def test_remove_dead_code(model, inputs):" in text
    file = tmp_path / "test_it.py"
    file.write_text(text)
    test = runpy.run_path(str(file))["test_remove_dead_code"]
    test(traced, torch.ones(3))


@pytest.mark.parametrize(("nodes", "made"), [(["cos"], "ChangeCos"), (["sigmoid_1", "mul"], "new_pass")])
def test_a_new_pass_runs_as_it_is_and_finds_the_place(session, nodes, made, tmp_path):
    text = written_pass(session.original, nodes)
    assert '"""' in text
    names = run(text, tmp_path)
    new = names[made]() if isinstance(names[made], type) else names[made]
    assert nodes[-1] in {name for each in new.candidates(session.original) for name in each}
