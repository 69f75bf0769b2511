"""fxlab where transformers is not installed: all that needs no model of it, and words for what does."""

import pytest
from fresh_python import run

BLOCKED = """
import contextlib
import io
import sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"transformers", "tokenizers", "huggingface_hub"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

import torch
from torch import nn

import fxlab
from fxlab.command_line import main

def command(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue() + err.getvalue()
"""

PLAIN = """
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout()).eval()
inputs = torch.randn(2, 3, 8, 8)
assert len(fxlab.symbolic_trace(model, inputs).graph.find_nodes(op="call_module", target="0")) == 1
session = fxlab.Session(model, inputs)
for name in ("fuse-batch-norm2d-in-conv2d", "remove-identities"):
    session.apply(name)
assert session.verdict().agrees and len(session.applied) == 2
assert fxlab.draw(session.graph_module).svg.count("<svg") == 1
assert fxlab.report(session, path="report.html").stat().st_size > 500_000
assert len(fxlab.load_session(session.save("stack.json"), model, inputs).applied) == 2
torch.export.save(torch.export.export(model, (inputs,)), "model.pt2")
for arguments in (("trace", "model.pt2"), ("report", "model.pt2")):
    code, said = command(*arguments)
    assert code == 0, (arguments, said)
assert "transformers" not in sys.modules
"""

OF_TRANSFORMERS = """
Path("config.json").write_text('{"model_type": "bert"}')
Path("model").mkdir()
Path("model/config.json").write_text('{"model_type": "bert"}')
for model in ("config.json", "model", "somebody/some-bert"):
    for arguments in (("trace", model), ("report", model, "-o", "report.html")):
        code, said = command(*arguments)
        assert (code, said.count("\\n")) == (2, 1), said
        assert f"{model}: a configuration, or the name of a model, needs transformers." in said, said
        assert "pip install 'fxlab[transformers]'" in said, said

try:
    fxlab.Session(nn.Linear(1, 1))
except ValueError as error:
    assert "can be made for models of transformers only; Linear has no config. Give inputs" in str(error)
else:
    raise AssertionError("inputs were made for a plain module")
"""


@pytest.mark.weekly
def test_without_transformers(tmp_path):
    run(BLOCKED + PLAIN + OF_TRANSFORMERS, cwd=tmp_path)
