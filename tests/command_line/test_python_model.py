"""Models that the command takes from Python code, and what it says of code that gives none."""

import json
import sys

import pytest
import torch

CODE = """
import torch
from torch import nn

import {helper}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.first(x) + self.second(x)


net = Net().eval()


def with_inputs():
    return Net().eval(), torch.ones(3, 4)


def raising():
    return {helper}.missing


def nothing():
    return 3
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """Let what a command adds to the path be gone after it, as with a process that ends."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def code(tmp_path, request):
    """Return a file with models, which imports another one beside it."""
    helper = f"beside_{abs(hash(request.node.name))}"
    path = tmp_path / f"models_{abs(hash(request.node.name))}.py"
    (tmp_path / f"{helper}.py").write_text("")
    path.write_text(CODE.format(helper=helper))
    before = {*sys.modules}
    yield path
    for name in {*sys.modules} - before:
        if name.startswith(("beside_", "models_")):
            del sys.modules[name]


def test_a_function_makes_the_model_and_its_inputs(fxlab, code):
    ended = fxlab("report", f"{code}:with_inputs", "--passes", "merge-linears", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["passes"] == [
        {"pass": "merge-linears", "changes": "1 rewrite: 2 linears become 1", "refused": 0}
    ]


def test_a_module_of_the_working_directory_is_named_as_it_is_imported(fxlab, code, monkeypatch, inputs_file):
    monkeypatch.chdir(code.parent)
    ended = fxlab("trace", f"{code.stem}:net", "--inputs", inputs_file, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["model"] == f"Net, {code.stem}:net"


def test_a_class_is_called_with_the_seed_the_dtype_and_the_device_asked_for(
    fxlab, code, inputs_file, tmp_path
):
    def weight(*arguments):
        file = tmp_path / "graph.pt"
        ended = fxlab("trace", f"{code}:Net", "--inputs", inputs_file, "--no-check", "-o", file, *arguments)
        assert ended.code == 0, ended.err
        return torch.load(file, weights_only=False).get_parameter("first.weight")

    assert torch.equal(weight("--seed", "1"), weight("--seed", "1"))
    assert not torch.equal(weight("--seed", "1"), weight("--seed", "2"))
    assert weight("--dtype", "bfloat16").dtype == torch.bfloat16
    assert weight("--meta").is_meta


@pytest.fixture
def inputs_file(tmp_path):
    """Return a file of inputs."""
    file = tmp_path / "inputs.pt"
    torch.save({"x": torch.ones(3, 4)}, file)
    return file


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "there is no missing in "),
        ("raising", "AttributeError: module 'beside_"),
        ("nothing", "expected a torch.nn.Module"),
        ("Net", "Give inputs for: x"),
    ],
)
def test_code_without_a_model_is_refused_in_words(fxlab, code, name, words):
    ended = fxlab("trace", f"{code}:{name}")
    assert ended.code == 2
    assert words in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    if name == "raising":
        assert ended.err.rstrip().endswith(f"({code.name}:25)")


def test_options_that_are_not_of_code_are_refused(fxlab, code):
    ended = fxlab("trace", f"{code}:net", "--architecture", "BertModel")
    assert (ended.code, "--architecture: " in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere_at_all:net", "No module named 'nowhere_at_all'"),
        ("nowhere.py:net", "nowhere.py: there is no such file"),
        ("bare.py", "file.py:name"),
    ],
)
def test_code_that_is_not_there_is_told(fxlab, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.py").write_text("")
    ended = fxlab("trace", name)
    assert (ended.code, words in ended.err) == (2, True), ended.err


def test_a_file_whose_name_python_gives_to_another_module_is_refused(fxlab, tmp_path):
    (tmp_path / "json.py").write_text("net = None")
    ended = fxlab("trace", f"{tmp_path / 'json.py'}:net")
    assert (ended.code, "another module json" in ended.err) == (2, True), ended.err


def test_a_model_without_weights_of_its_own_is_not_run_on_inputs_without_numbers(fxlab, tmp_path):
    code = tmp_path / f"no_weights_{tmp_path.name}.py"
    code.write_text("import torch\ndef make():\n    return torch.nn.Identity(), torch.ones(2)\n")
    ended = fxlab("report", f"{code}:make", "--meta", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["verdict"] is None


@pytest.mark.parametrize("status", ["0", "3", ""])
def test_code_that_ends_python_gives_no_answer(fxlab, tmp_path, status):
    code = tmp_path / f"ends_{tmp_path.name}.py"
    code.write_text(f"import sys\n\ndef make():\n    sys.exit({status})\n")
    ended = fxlab("report", f"{code}:make", "--passes", "all")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("fxlab: SystemExit")
    assert f"({code.name}:4): this code ends Python" in ended.err
