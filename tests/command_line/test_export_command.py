"""``fxlab export``: a model with passes as a file."""

import json

import pytest
import torch
from torch import nn

from fxlab.deployment.files import write_file

pytestmark = pytest.mark.slow


def test_a_file_is_written_and_judged(fxlab, tiny, tmp_path):
    path = tmp_path / "model.pt2"
    ended = fxlab("export", tiny, "--passes", "merge-linears", "-o", path, "--format", "json")
    answer = json.loads(ended.out)
    assert ended.code == 0, ended.err
    assert answer["verdict"] in ("same bits", "within the model's own rounding")
    assert answer["outputs"][0]["output"] == "keys"
    assert [words.partition(":")[0] for words in answer["inputs"]] == ["x"]
    assert [row["pass"] for row in answer["passes"]] == ["merge-linears"]
    keys, _ = torch.export.load(path).module()(torch.ones(5, 4))
    assert keys.shape == (5, 4)


def test_a_pass_that_changes_the_model_is_exit_code_1(fxlab, tiny, tmp_path, somebodys_passes):
    ended = fxlab("export", tiny, "--passes", "double", "-o", tmp_path / "model.pt2", "--fixed")
    assert (ended.code, "different" in ended.out) == (1, True)


def test_wrong_files_and_missing_packages_are_said_before_anything_is_loaded(
    fxlab, checkpoint, tmp_path, monkeypatch
):
    ended = fxlab("export", checkpoint, "-o", tmp_path / "model.bin")
    assert (ended.code, "ends in .pt2 or .onnx" in ended.err) == (2, True)
    monkeypatch.setattr(write_file.importlib.util, "find_spec", lambda name: None)
    ended = fxlab("export", "no such model", "-o", tmp_path / "model.onnx")
    assert (ended.code, "pip install onnx onnxscript onnxruntime" in ended.err) == (2, True)
    ended = fxlab("export", checkpoint, "--meta", "-o", tmp_path / "model.pt2")
    assert (ended.code, "without weights" in ended.err) == (2, True)


def test_a_model_that_no_file_holds_is_exit_code_7(fxlab, tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    torch.save(model, tmp_path / "model.pt")
    torch.save((torch.randn(3, 4),), tmp_path / "inputs.pt")
    ended = fxlab(
        *("export", tmp_path / "model.pt", "--trust", "--inputs", tmp_path / "inputs.pt"),
        *("-o", tmp_path / "model.pt2"),
    )
    assert (ended.code, "writes in place" in ended.err) == (7, True)
