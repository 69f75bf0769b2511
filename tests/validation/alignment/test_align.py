"""Models that share neither names nor structure are aligned by their values, and part where they differ."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import fxlab
from fxlab.graphs.lineage import are_apart
from fxlab.validation.alignment.fingerprint import Fingerprint, Found

IDS = torch.randint(0, 30, (2, 6), generator=torch.Generator().manual_seed(0))
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 30,
}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        h = self.before(x)
        q, k, v = (
            each(h).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Embedding(30, 16), nn.LayerNorm(16)
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.last(x) @ self.embed.weight.T}


class PortedLayer(nn.Module):
    """The same in other steps: one projection, attention by hand, other names; perhaps with a mistake."""

    def __init__(self, layer, mistake=""):
        super().__init__()
        three = layer.query, layer.key, layer.value
        self.qkv = nn.Parameter(torch.cat([each.weight for each in three]).T.contiguous())
        self.qkv_bias = nn.Parameter(torch.cat([each.bias for each in three]))
        self.o, self.ln1, self.ln2 = layer.out, layer.before, layer.after
        self.w1, self.b1 = nn.Parameter(layer.up.weight.T.clone()), layer.up.bias
        self.w2, self.b2 = nn.Parameter(layer.down.weight.T.clone()), layer.down.bias
        self.mistake = mistake
        if mistake == "weight":
            with torch.no_grad():
                self.w1[0, 0] += 1e-3

    def forward(self, x):
        q, k, v = (self.ln1(x) @ self.qkv + self.qkv_bias).chunk(3, -1)
        q, k, v = (each.reshape(*each.shape[:2], 2, 8).permute(0, 2, 1, 3) for each in (q, k, v))
        scores = q @ k.mT / (8.0 if self.mistake == "scale" else 8**0.5)
        if self.mistake != "mask":
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        a = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.o(a) + x
        h = x if self.mistake == "norm" else self.ln2(x)
        h = F.gelu(h @ self.w1 + self.b1, approximate="tanh" if self.mistake == "gelu" else "none")
        h = h @ self.w2 + self.b2
        return h if self.mistake == "residual" else h + x


class Port(nn.Module):
    def __init__(self, model, mistake="", at=2):
        super().__init__()
        self.table, self.norm = model.embed.weight, model.last
        self.blocks = nn.ModuleList(
            PortedLayer(layer, mistake if index == at else "") for index, layer in enumerate(model.layers)
        )

    def forward(self, tokens):
        x = F.embedding(tokens, self.table)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.table.mT


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def original(model):
    return fxlab.symbolic_trace(model, (IDS,))


def ported(model, *mistake):
    return fxlab.symbolic_trace(Port(model, *mistake).eval(), (IDS,))


def test_a_right_port_agrees_and_is_not_accused(model, original):
    port = ported(model)
    assert are_apart(original, port)
    found = fxlab.align(original, port, (IDS,))
    assert found.agrees
    assert (found.parted, found.parted_original, len(found.frontier())) == ((), (), 0)
    assert found.partners["blocks_3_o"] == "layers_3_out"
    assert fxlab.first_divergence(original, port, (IDS,)) is None


@pytest.mark.parametrize(
    ("mistake", "there"),
    [
        ("gelu", "gelu_2"),
        ("scale", "matmul_11"),
        ("mask", "matmul_11"),
        ("norm", "matmul_13"),
        ("weight", "matmul_13"),
    ],
)
def test_a_mistake_is_named(model, original, mistake, there):
    port = ported(model, mistake)
    found = fxlab.align(original, port, (IDS,))
    assert not found.agrees
    assert fxlab.first_divergence(original, port, (IDS,)).node in (*found.parted, *found.parted_original)
    rows = found.frontier()
    places = rows[rows["graph"] == "transformed"]["module_path"].tolist()
    assert found.parted == (there,)
    assert places == ["blocks.2"]
    assert all("layers.2" in path for path in rows[rows["graph"] == "original"]["module_path"])


def test_a_step_that_is_left_out_stands_in_the_original(model, original):
    found = fxlab.align(original, ported(model, "residual"), (IDS,))
    assert (found.parted, found.parted_original) == (("blocks_3_ln1",), ("add_5",))


def test_weights_that_the_other_graph_does_not_have_are_named(model, original):
    found = fxlab.align(original, ported(model, "weight"), (IDS,))
    assert found.weights == {"matmul_13": ("blocks_2_w1",)}
    assert "blocks_2_w1" in str(found)


def test_layers_that_are_exchanged_are_seen_at_the_first(model, original):
    port = Port(model)
    port.blocks[1], port.blocks[2] = port.blocks[2], port.blocks[1]
    found = fxlab.align(original, fxlab.symbolic_trace(port.eval(), (IDS,)), (IDS,))
    assert found.frontier()["module_path"].str.contains(r"\.1\b").all()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_exported_and_decomposed_graphs_agree(model, original):
    program = torch.export.export(model, (IDS,))
    for other in (program, program.run_decompositions()):
        assert fxlab.align(original, fxlab.from_exported(other), (IDS,)).agrees


@pytest.mark.parametrize(
    ("architecture", "config"),
    [(BertModel, BertConfig(**SMALL)), (LlamaModel, LlamaConfig(**SMALL, use_cache=False))],
)
def test_two_kinds_of_attention_agree_and_a_changed_weight_is_found(architecture, config):
    eager, sdpa = copy.deepcopy(config), copy.deepcopy(config)
    eager._attn_implementation, sdpa._attn_implementation = "eager", "sdpa"
    first, second = architecture(eager).eval(), architecture(sdpa).eval()
    second.load_state_dict(first.state_dict())
    inputs = {"input_ids": IDS, "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    graphs = fxlab.symbolic_trace(first, inputs), fxlab.symbolic_trace(second, inputs)
    assert fxlab.align(*graphs, inputs).agrees
    name, weight = next(
        (n, p)
        for n, p in second.named_parameters()
        if ("1" in n and n.endswith("v_proj.weight")) or n.endswith("1.attention.self.value.weight")
    )
    with torch.no_grad():
        weight[0] *= 1.01
    found = fxlab.align(*graphs, inputs)
    assert [path for path in found.frontier()["module_path"] if path in name] != []
    assert len(found.parted) == 1


def test_outputs_at_other_places_are_told():
    def one(x):
        return x + 1, x * 2

    def other(x):
        return x * 2, x + 1

    found = fxlab.align(torch.fx.symbolic_trace(one), torch.fx.symbolic_trace(other), torch.randn(3))
    assert not found.agrees
    assert found.parted == ()
    assert "is another one" in str(found)


def test_graphs_of_one_capture_are_compared_node_by_node_as_ever(original):
    changed = copy.deepcopy(original)
    with torch.no_grad():
        changed.get_submodule("layers.1.up").weight[0, 0] += 1
    assert not are_apart(original, changed)
    assert fxlab.first_divergence(original, changed, (IDS,)).node == "layers_1_up"


def test_models_without_weights_are_refused_in_words(original):
    with pytest.raises(ValueError, match="meta"):
        fxlab.align(original, copy.deepcopy(original).to("meta"), (IDS,))


@given(st.integers(0, 10_000), st.permutations(range(4)), st.sampled_from([torch.float64, torch.float32]))
def test_a_fingerprint_is_that_of_the_elements(seed, order, dtype):
    tensor = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed)).to(dtype)
    mine = Fingerprint.of(tensor)
    for other in (tensor.permute(order), tensor.flatten(), tensor.to(torch.float64)[None]):
        assert mine.is_like(Fingerprint.of(other))
    changed = tensor.clone()
    changed[tuple(seed % size for size in tensor.shape)] += 1e-3
    found = Found()
    found.add(mine, "mine")
    assert not mine.is_like(Fingerprint.of(changed))
    assert list(found.like(Fingerprint.of(tensor.permute(order)))) == ["mine"]
    assert list(found.like(Fingerprint.of(changed))) == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0),
        torch.full((3,), torch.nan),
        torch.tensor([torch.inf, -torch.inf, 1.0]),
        torch.ones(2) * 1j,
    ],
)
def test_odd_tensors_have_fingerprints(tensor):
    assert Fingerprint.of(tensor).is_like(Fingerprint.of(tensor.clone()))
    assert not Fingerprint.of(tensor).is_like(Fingerprint.of(torch.ones(7)))
