"""What fxlab computes for itself is on the CPU, whatever ``torch.set_default_device`` says."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab

FACTORIES = {
    *("arange", "as_tensor", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand"),
    *("randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros"),
}
OF_THE_MODEL = {"reads.py", "run.py", "fake_kernels.py", "input_makers.py"}
"""Files that make tensors where the model would make them."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.q, self.k, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.5)

    def forward(self, x):
        x = self.norm(self.conv(x))
        return torch.relu(self.drop(self.q(x) * self.k(x)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))


def test_every_tensor_that_is_made_says_where():
    found = []
    for path in (Path(fxlab.__file__).parent).rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(f"torch.{name}(" in text for name in FACTORIES) else ():
            if getattr(getattr(node, "func", None), "attr", "") not in FACTORIES or path.name in OF_THE_MODEL:
                continue
            keywords = {keyword.arg for keyword in node.keywords}
            if ast.unparse(node.func) in {f"torch.{name}" for name in FACTORIES}:
                found += [f"{path}:{node.lineno}"] if not keywords & {"device", None} else []
    assert not found, "give device=, or the default device decides where they are"


def test_traces_passes_and_verdicts(model):
    with torch.device("meta"):
        session = fxlab.Session(model, X)
        for name in ("FuseBatchNorm1dInConv1d", "MergeLinears"):
            session.apply(getattr(fxlab, name)())
        assert session.verdict(variants=True, gradients=True).agrees
        assert fxlab.first_divergence(session.original, session.graph_module, session.inputs) is None

        def smaller(graph_module):
            graph_module.get_submodule("conv").weight.data.mul_(1.01)
            return graph_module

        session.apply(fxlab.from_callable(smaller, preserves_computation=True))
        assert not session.verdict().agrees
        assert fxlab.bisect(session).pass_.name == "smaller"
    assert not [name for name, tensor in model.state_dict().items() if tensor.is_meta]


def test_dropout_that_is_on(model):
    with torch.device("meta"):
        session = fxlab.Session(model.train(), X)
        session.apply(fxlab.MergeLinears())
        assert session.verdict().agrees


def test_patterns_are_confirmed(model):
    with torch.device("meta"):
        session = fxlab.Session(model, X)
        wrong = fxlab.from_pattern(lambda x: torch.relu(x), lambda x: F.gelu(x), preserves_computation=True)
        assert "differs" in wrong.explain(session.graph_module).reason.iloc[0]


def test_models_and_runs_are_compared(model, tmp_path):
    other = Model().eval()
    other.load_state_dict(model.state_dict())
    other.norm.eps = 1e-2
    with torch.device("meta"):
        assert str(fxlab.compare(model, other, X).first).startswith("norm")
        fxlab.runs.record_run(model, X, tmp_path / "a.run", backward=True)
        assert fxlab.compare(tmp_path / "a.run", model, X).agrees
        assert not fxlab.compare(tmp_path / "a.run", other, X).agrees
        assert fxlab.Session(model, X).evaluate([X, X]).agrees


@pytest.mark.weekly
def test_steps_and_compiled_graphs(model):
    with torch.device("meta"):
        step = fxlab.trace_step(model.train(), X, loss=lambda output: output.square().mean())
        assert fxlab.Session(step).verdict().agrees
        assert fxlab.memory(step).peak
        assert fxlab.compiler.compile_session(model.eval(), X).verdict().agrees
