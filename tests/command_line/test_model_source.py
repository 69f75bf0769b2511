"""Which models the command takes, and what it says of those that it does not."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import BertModel

import fxlab as package
from fxlab.values.tensors import same_bits

pytestmark = pytest.mark.slow


def saved_graph(fxlab, path, *arguments):
    ended = fxlab("trace", *arguments, "-o", path, "--no-check")
    assert ended.code == 0, ended.err
    return torch.load(path, weights_only=False)


def test_a_directory_with_weights_is_loaded_with_them(fxlab, checkpoint, tmp_path):
    graph = saved_graph(fxlab, tmp_path / "graph.pt", checkpoint)
    weights = BertModel.from_pretrained(checkpoint).state_dict()
    assert graph.state_dict().keys() <= weights.keys()
    assert all(same_bits(tensor, weights[name]) for name, tensor in graph.state_dict().items())


def test_random_weights_are_those_of_the_seed(fxlab, checkpoint, config_file, tmp_path):
    arguments = [(config_file,), (checkpoint, "--random-weights"), (config_file, "--seed", "7")]
    states = [saved_graph(fxlab, tmp_path / "graph.pt", *a).state_dict() for a in arguments]
    weights = [state["embeddings.word_embeddings.weight"] for state in states]
    assert same_bits(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_weights_that_a_checkpoint_lacks_are_named(fxlab, checkpoint):
    ended = fxlab("trace", checkpoint, "--architecture", "BertForMaskedLM", "--no-check")
    assert ended.code == 0
    assert "BertForMaskedLM" in ended.out
    assert "warning: the checkpoint has no cls.predictions" in ended.err


def test_without_weights_nothing_is_run(fxlab, config_file):
    ended = fxlab("report", config_file, "--meta", "--passes", "merge-linears", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0
    assert answer["verdict"] is None
    assert answer["passes"] == [
        {"pass": "merge-linears", "changes": "1 rewrite: 3 linears become 1", "refused": 0}
    ]


def test_the_dtype_and_the_attention_are_those_asked_for(fxlab, config_file):
    ended = fxlab("trace", config_file, "--dtype", "bfloat16", "--attention", "eager", "--code")
    assert ended.code == 0
    assert "softmax" in ended.out
    nodes = fxlab("trace", config_file, "--dtype", "bfloat16", "--nodes", "--json")
    assert "bfloat16" in {row["dtype"] for row in json.loads(nodes.out)["graph"]}


def test_an_exported_program_brings_its_inputs(fxlab, exported):
    ended = fxlab("report", exported, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["verdict"] == "same bits"


class Trap:
    def __reduce__(self):
        return open, ("/nowhere/the file's code ran", "w")


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.pkl"])
def test_a_pickle_is_not_opened(fxlab, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Trap()))
    ended = fxlab("trace", path, "--trust")
    assert ended.code == 2
    assert "can run code" in ended.err
    assert "file.py:name" in ended.err


def linear():
    return nn.Sequential(nn.Linear(4, 2))


def traced():
    return package.symbolic_trace(linear(), torch.ones(3, 4))


def test_inputs_that_are_missing_may_be_in_a_file(fxlab, tmp_path):
    ended = fxlab("report", f"{__name__}:linear", "-o", tmp_path / "report.html")
    assert ended.code == 2
    assert ended.err.rstrip().endswith("(or in a file: --inputs)")


def test_a_program_that_can_run_code_is_loaded_only_if_it_is_trusted(fxlab, tmp_path):
    program = torch.export.export(nn.ReLU(), (torch.randn(3),))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path, extra_files={"notes": "data"})
    assert fxlab("trace", path).code == 0
    program._example_inputs = ((Trap(),), {})
    torch.export.save(program, path)
    ended = fxlab("trace", path)
    assert ended.code == 2
    assert "can run code" in ended.err
    assert "--trust" in ended.err
    trusted = fxlab("trace", path, "--trust")
    assert "the file's code ran" in trusted.err  # torch.export.load unpickles it


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 a part of one"])
def test_a_broken_program_is_named(fxlab, tmp_path, content):
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    ended = fxlab("report", path, "-o", tmp_path / "report.html")
    assert ended.code == 2
    assert f"{path}: expected a program saved by torch.export.save" in ended.err


def test_inputs_that_can_run_code_are_refused(fxlab, tiny, tmp_path):
    path = tmp_path / "inputs.pt"
    torch.save(Trap(), path)
    ended = fxlab("trace", tiny, "--inputs", path)
    assert ended.code == 2
    assert "the file's code ran" not in ended.err
    assert "holds other objects" in ended.err


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_inputs_are_read_from_a_file(fxlab, config_file, tmp_path, suffix):
    path, ids = tmp_path / f"inputs{suffix}", torch.arange(10).reshape(2, 5)
    if suffix == ".npz":
        import numpy as np

        np.savez(path, input_ids=ids.numpy())
    else:
        (save_file if suffix == ".safetensors" else torch.save)({"input_ids": ids}, path)
    ended = fxlab("trace", config_file, "--inputs", path, "--nodes", "--json")
    assert ended.code == 0, ended.err
    placeholders = [row for row in json.loads(ended.out)["graph"] if row["op"] == "placeholder"]
    assert [(row["node"], row["shape"]) for row in placeholders] == [("input_ids", "(2, 5)")]


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_a_file_that_has_no_inputs_is_refused(fxlab, config_file, tmp_path, suffix):
    path = tmp_path / f"inputs{suffix}"
    for content in (b"", b"junk", b"PK\x03\x04junk", b"\x80\x02]q\x00"):
        path.write_bytes(content)
        ended = fxlab("trace", config_file, "--inputs", path)
        assert ended.code == 2
        assert f"--inputs {path}: expected a .safetensors or .npz file" in ended.err


def test_sizes_of_made_inputs_are_those_asked_for(fxlab, config_file):
    ended = fxlab("trace", config_file, "--batch-size", 3, "--length", 7, "--nodes", "--json")
    assert json.loads(ended.out)["graph"][0]["shape"] == "(3, 7)"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not json", "Expecting value"),
        ("[]", "expected a configuration of transformers, with a model_type"),
        ("{}", "expected a configuration of transformers, with a model_type"),
        ('{"model_type": "no-such-model"}', "has no architecture 'no-such-model'"),
        ('{"model_type": "bert", "num_attention_heads": 7}', "multiple of"),
    ],
)
def test_a_configuration_that_is_none_is_refused(fxlab, tmp_path, content, words):
    path = tmp_path / "config.json"
    path.write_text(content)
    ended = fxlab("trace", path)
    assert ended.code == 2, ended.err
    assert words in ended.err


def test_what_is_no_model_is_refused(fxlab, tmp_path, config_file):
    (tmp_path / "weights.onnx").write_bytes(b"")
    torch.save({"weight": torch.ones(2)}, tmp_path / "weights.pt")
    for arguments, words in [
        ((tmp_path,), "no config.json in this directory"),
        ((tmp_path / "weights.onnx",), "expected a config.json"),
        ((tmp_path / "missing.json",), "no such file or directory"),
        (("./nobody/nothing",), "no such file or directory"),
        ((tmp_path / "weights.pt",), "for weights alone, the directory that has config.json"),
        ((config_file, "--architecture", "Linear"), "has no model class 'Linear'"),
        ((config_file, "--device", "toaster"), "toaster"),
        ((config_file, "--device", "cuda:99"), "(--device cuda:99)"),
    ]:
        ended = fxlab("trace", *arguments)
        assert ended.code == 2, (arguments, ended)
        assert words in ended.err


def test_a_name_on_the_hub_goes_to_the_real_loading_code(fxlab, monkeypatch, checkpoint):
    from transformers import AutoConfig, AutoModel

    asked = []
    real_config, real_model = AutoConfig.from_pretrained, BertModel.from_pretrained

    def config(name, **options):
        asked.append((name, options))
        return real_config(checkpoint, **options)

    def model(name, **options):
        asked.append((name, {}))
        return real_model(checkpoint, **options)

    monkeypatch.setattr(AutoConfig, "from_pretrained", config)
    monkeypatch.setattr(BertModel, "from_pretrained", model)
    monkeypatch.setattr(AutoModel, "from_pretrained", model)
    ended = fxlab("trace", "somebody/some-bert", "--no-check")
    assert ended.code == 0, ended.err
    assert asked == [("somebody/some-bert", {"trust_remote_code": False}), ("somebody/some-bert", {})]


def test_a_module_without_a_config_needs_inputs(fxlab, tmp_path):
    torch.save(torch.ones(3, 4), tmp_path / "inputs.pt")
    ended = fxlab("trace", f"{__name__}:linear")
    assert ended.code == 2
    assert "Give inputs for: input" in ended.err
    assert "--inputs" in ended.err
    ended = fxlab("trace", f"{__name__}:linear", "--inputs", tmp_path / "inputs.pt")
    assert ended.code == 0, ended.err


def test_a_graph_without_inputs_can_be_looked_at_but_not_compared(fxlab):
    assert fxlab("trace", f"{__name__}:traced").code == 0
    ended = fxlab("report", f"{__name__}:traced")
    assert ended.code == 5
    assert "no inputs" in ended.err
