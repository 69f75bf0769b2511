"""Sessions of models on the meta device whose weights are mapped from files."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import fxlab
from fxlab import Session, load_session
from fxlab.models.weight_files import weights_of
from fxlab.values import results_on_disk

INDEX = "model.safetensors.index.json"
LLAMA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "use_cache": False,
}


def on_meta(cls, config, dtype=torch.bfloat16):
    with torch.device("meta"):
        return cls._from_config(config, dtype=dtype).eval()


class Wrong(fxlab.MergeLinears):
    """Merges linears, and is 1% off in one of them."""

    def rewrite(self, candidate, edit):
        merged = super().rewrite(candidate, edit)
        if "layers.1.mlp" in str(merged.target):
            with torch.no_grad():
                edit.graph_module.get_submodule(merged.target).weight[:48] *= 1.01
        return merged


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM._from_config(LlamaConfig(**LLAMA), dtype=torch.bfloat16).save_pretrained(
        path, max_shard_size="10KB"
    )
    assert len([*path.glob("*.safetensors")]) > 2
    return path


@pytest.fixture(scope="module")
def inputs():
    return fxlab.example_inputs(on_meta(LlamaForCausalLM, LlamaConfig(**LLAMA)))


def is_in_file(tensor):
    """Tell whether the memory of a tensor is that of a file, by the system's own table."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= tensor.data_ptr() < end:
            return "safetensors" in line or "fxlab-" in line
    return False


PASSES = [fxlab.FuseRMSNorm(), fxlab.MergeLinears(), Wrong(), fxlab.FuseBiasInLinear()]


@pytest.fixture(scope="module")
def sessions(folder, inputs):
    """Of the same model: one with weights in files, one with loaded ones."""
    model = on_meta(LlamaForCausalLM, LlamaConfig(**LLAMA))
    in_files = Session(model, inputs, passes=PASSES, weights=folder)
    assert all(map(is_in_file, in_files.original.parameters()))
    return in_files, Session(LlamaForCausalLM.from_pretrained(folder).eval(), inputs, passes=PASSES)


STACKS = {"right": ("fuse-rms-norm", "merge-linears"), "wrong": ("merge-linears", "wrong")}


@pytest.fixture(params=STACKS)
def stacks(sessions, request):
    for session in sessions:
        session.revert()
        for name in STACKS[request.param]:
            session.apply(name)
    return sessions


def test_a_session_computes_what_the_loaded_model_does(sessions, folder, inputs):
    loaded = LlamaForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        assert torch.equal(sessions[0].original(**inputs).logits, loaded(**inputs).logits)


def test_every_judgement_is_that_of_loaded_weights(stacks):
    ours, theirs = stacks
    assert str(ours.verdict()) == str(theirs.verdict())
    assert ours.verdict().table.equals(theirs.verdict().table)
    assert nodes_of(ours).equals(nodes_of(theirs))
    found = [fxlab.first_divergence(s.original, s.graph_module, s.inputs) for s in (ours, theirs)]
    assert found[0] == found[1]
    assert fxlab.graph_diff(*_graphs(ours)).equals(fxlab.graph_diff(*_graphs(theirs)))


def _graphs(session):
    return session.original, session.graph_module


@pytest.mark.weekly
def test_a_planted_mistake_is_found_by_name(sessions):
    for session in sessions:
        session.revert()
        session.apply("fuse-rms-norm")
        session.apply("wrong")
    found, expected = map(fxlab.bisect, sessions)
    assert found.rewrites == expected.rewrites == ("gate_proj_up_proj_merged_1",)
    assert str(found) == str(expected)
    assert found.divergence.node == "model_layers_1_mlp_gate_proj"


def test_values_and_batches_are_those_of_loaded_weights(sessions):
    for session in sessions:
        session.revert()
        session.apply("merge-linears")
    ours, theirs = sessions
    node = next(node.name for node in ours.graph_module.graph.nodes if node.name.endswith("_merged"))
    assert fxlab.node_values(ours, node).table.equals(fxlab.node_values(theirs, node).table)
    batches = [{name: tensor[:size] for name, tensor in ours.inputs.items()} for size in (1, 2)]
    ours, theirs = (session.evaluate(batches).table for session in sessions)
    assert ours.equals(theirs)


def test_weights_that_passes_make_are_in_files_too(sessions, inputs, monkeypatch):
    monkeypatch.setattr(results_on_disk, "_LARGE", 96 * 32)
    for session, there in zip(sessions, (True, False), strict=True):
        merging = Session(session.original, inputs, passes=PASSES)
        merging.apply("merge-linears")
        merged = [p for p in merging.graph_module.parameters() if p.shape == (96, 32)]
        assert [is_in_file(weight) for weight in merged] == [there] * 2


def test_what_is_written_to_a_weight_counts(sessions, inputs):
    session = Session(copy.deepcopy(sessions[0].original), inputs, passes=PASSES)
    session.apply("merge-linears")
    before = session.graph_module
    with torch.no_grad():
        session.original.get_parameter("model.layers.0.self_attn.q_proj.weight")[3] = 0
    assert session.graph_module is not before
    merged = next(p for name, p in session.graph_module.named_parameters() if "q_proj_k_proj_v_proj" in name)
    assert not merged[3].any()
    assert session.verdict().agrees


INPUT = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(4, 3), nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.a(x)) + self.b(x)


@pytest.fixture
def plain(tmp_path):
    """A model with random weights, and the folder that has them."""
    torch.manual_seed(0)
    model = Plain().eval()
    with torch.no_grad():
        model.norm.running_mean.normal_(), model.norm.running_var.uniform_(1, 2)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    return model, tmp_path


def session_of(folder):
    return Session(Plain().eval().to("meta"), INPUT, weights=folder)


def test_a_plain_model_has_weights_by_their_own_names(plain):
    model, folder = plain
    session = session_of(folder)
    with torch.no_grad():
        assert torch.equal(session.original(torch.ones(2, 4)), model(torch.ones(2, 4)))
    session.apply("fuse-batch-norm1d-in-linear")
    loaded = Session(model, INPUT)
    loaded.apply("fuse-batch-norm1d-in-linear")
    assert session.verdict().table.equals(loaded.verdict().table)
    assert session.verdict().table.new_values_error.item() > 0, session.verdict()


def test_a_saved_session_is_loaded_with_weights_in_files(plain):
    _, folder = plain
    session = session_of(folder)
    session.apply("fuse-batch-norm1d-in-linear")
    path = session.save(folder / "stack.json")
    model = Plain().eval().to("meta")
    again = load_session(path, model, INPUT, weights=folder)
    assert again._internals.is_on("fuse-batch-norm1d-in-linear")
    assert again.verdict().agrees


def test_weights_of_a_plain_model_are_not_cast(plain):
    model, folder = plain
    save_file(model.state_dict() | {"a.bias": torch.ones(3).half()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"a.bias is float16 in .* and float32 in the model"):
        session_of(folder)


def test_gradients_are_those_of_loaded_weights(plain):
    model, folder = plain
    found = [session.verdict(gradients=True) for session in (session_of(folder), Session(model, INPUT))]
    assert str(found[0]) == str(found[1])


def test_weights_that_transformers_merges_are_merged_in_files(tmp_path, monkeypatch):
    monkeypatch.setattr(results_on_disk, "_LARGE", 2**12)
    settings = LLAMA | {"num_hidden_layers": 1, "num_local_experts": 2, "vocab_size": 32}
    config = MixtralConfig(**settings, experts_implementation="eager")
    torch.manual_seed(0)
    MixtralForCausalLM._from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    found = weights_of(on_meta(MixtralForCausalLM, config, torch.float32), tmp_path)
    loaded = dict(MixtralForCausalLM.from_pretrained(tmp_path).named_parameters())
    merged = [tensor for tensor in found.values() if tensor.dim() == 3]
    assert merged
    assert all(map(is_in_file, merged))
    assert all(torch.equal(found[name], tensor) for name, tensor in loaded.items())


def broken(folder, path, change):
    copied = shutil.copytree(folder, path / "broken")
    change(copied, sorted(copied.glob("*.safetensors"))[1])
    return copied


def _without_a_weight(folder, shard):
    weights = load_file(shard)
    del weights[min(weights)]
    save_file(weights, shard, metadata={"format": "pt"})


def _without_a_weight_that_the_index_names(folder, shard):
    _without_a_weight(folder, shard)
    index = folder / INDEX
    data = json.loads(index.read_text())
    there = {*load_file(shard)}
    data["weight_map"] = {n: f for n, f in data["weight_map"].items() if f != shard.name or n in there}
    index.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder, shard: shard.unlink(), "shard model-00002-of-.* is missing"),
        (lambda folder, shard: shard.write_bytes(shard.read_bytes()[:-5]), "model-00002-of-.* is broken"),
        (lambda folder, shard: shard.write_bytes(b"no weights"), "model-00002-of-.* is broken"),
        (_without_a_weight, "model-00002-of-.* lacks .*weight"),
        (_without_a_weight_that_the_index_names, r"has no \S+weight"),
        (lambda folder, shard: (folder / INDEX).write_text("[]"), "no index of shards"),
        (
            lambda folder, shard: (folder / INDEX).write_text('{"weight_map": {"a": "../a.safetensors"}}'),
            "not the name of a file beside it",
        ),
        (
            lambda folder, shard: (folder / INDEX).unlink(),
            "has neither model.safetensors nor model.safetensors.index.json. It has: config.json",
        ),
    ],
)
def test_what_is_missing_or_broken_is_named(folder, tmp_path, change, words):
    with pytest.raises(ValueError, match=f"weights: .*{words}"):
        weights_of(on_meta(LlamaForCausalLM, LlamaConfig(**LLAMA)), broken(folder, tmp_path, change))


def test_weights_of_another_shape_or_dtype_are_refused(folder):
    wide = LlamaConfig(**LLAMA | {"intermediate_size": 64})
    with pytest.raises(ValueError, match=r"shape \(32, 48\) in the files and \(32, 64\) in the model"):
        weights_of(on_meta(LlamaForCausalLM, wide), folder)
    narrow = on_meta(LlamaForCausalLM, LlamaConfig(**LLAMA)).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"inv_freq is float32 in .* and bfloat16 in the model.*without .to"):
        weights_of(narrow, folder)


def test_a_model_with_weights_and_what_is_no_path_are_refused(folder):
    graph = torch.fx.symbolic_trace(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="the model has weights already"):
        Session(graph, weights=folder)
    with pytest.raises(TypeError, match="weights: expected the path of a folder"):
        Session(graph, weights=3)
    with pytest.raises(ValueError, match="neither a folder nor a file"):
        Session(graph.to("meta"), weights=folder / "nowhere")


def test_a_file_that_changes_later_is_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, file)
    session, judged = (
        Session(nn.Linear(2, 2, device="meta"), torch.ones(2, 2), weights=file) for _ in range(2)
    )
    assert judged.verdict().agrees
    save_file({"weight": torch.ones(3, 2), "bias": torch.ones(2)}, file)
    for one in (session, judged):
        with pytest.raises(ValueError, match=r"model\.safetensors has changed since"):
            one.verdict()
    file.unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        session.verdict()


class OtherOnOtherDevices(nn.Linear):
    """Computes something else where its weights are not on the CPU, as models choose kernels."""

    def forward(self, x):
        y = super().forward(x)
        y = y * 2 if self.weight.device.type == "cpu" else y * 3
        return y if x.device.type == "cpu" else -y


def test_a_model_that_asks_for_its_device_is_traced_as_on_the_cpu(tmp_path):
    model, x = OtherOnOtherDevices(4, 4), torch.randn(2, 4)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with torch.device("meta"):
        without_data = OtherOnOtherDevices(4, 4)
    session = Session(without_data, x, weights=tmp_path)
    assert torch.equal(session.original(x), model(x))
    assert without_data.weight.is_meta


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.table(tokens))


@pytest.mark.parametrize("names", [["table"], ["head"], ["table", "head"], ["head", "table"]])
def test_tied_weights_are_found_under_any_name_as_load_state_dict_does(tmp_path, names):
    stored = {f"{name}.weight": torch.randn(6, 4) for name in names}
    save_file(stored, tmp_path / "model.safetensors")
    loaded, tokens = Tied(), torch.arange(6)[None]
    loaded.load_state_dict(stored, strict=False)
    with torch.device("meta"):
        session = Session(Tied(), tokens, weights=tmp_path)
    assert torch.equal(session.original(tokens), loaded(tokens))


def test_a_buffer_that_no_file_has_is_set_before(tmp_path):
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with torch.device("meta"):
        without_data = nn.Linear(4, 4)
        without_data.register_buffer("scale", torch.ones(4), persistent=False)
    without_data.register_forward_hook(lambda module, _, y: y * module.scale)
    with pytest.raises(ValueError, match="persistent=False: give the model tensors for scale"):
        Session(without_data, x, weights=tmp_path)
    without_data.scale = torch.full((4,), 3.0)
    assert torch.equal(Session(without_data, x, weights=tmp_path).original(x), model(x) * 3)


def nodes_of(session):
    return fxlab.compare_nodes(session.original, session.graph_module, session.inputs)
