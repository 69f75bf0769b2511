"""Models that share neither names nor structure are aligned by their values, and part where they differ."""

import copy
import functools
import json
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import fxlab
from fxlab.graphs.lineage import is_made_of
from fxlab.graphs.matching import known_to_agree, match_nodes
from fxlab.validation.alignment.fingerprint import Fingerprint, Found, fills_its_memory

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


@pytest.fixture(scope="module")
def compared(original, model):
    """Return a function that compares the model with its port, once for each mistake."""

    @functools.cache
    def compare(mistake=""):
        return fxlab.compare(original, Port(model, mistake).eval(), {"ids": IDS})

    return compare


def test_a_right_port_agrees_and_nothing_is_accused(original, compared):
    found = compared()
    assert found
    assert found.first is None
    assert found.odd_weights == []
    assert set(found.modules["status"]) == {"agrees"}
    assert not found.modules["difference"].any()
    assert found.modules.loc["blocks.2", "reference"] == "layers.2"
    assert found.table.loc["blocks_3_o", ["reference", "status"]].tolist() == ["layers_3_out", "agrees"]
    assert str(found).startswith("The outputs agree: within the model's own rounding")
    port = found.alignment.transformed.module
    assert not is_made_of(original, port)
    assert fxlab.first_divergence(original, port, (IDS,)) is None


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("mistake", "there", "in_reference"),
    [
        ("gelu", "gelu_2", "layers.2"),
        ("scale", "matmul_11", "layers.2"),
        ("mask", "matmul_11", "layers.2"),
        ("norm", "matmul_13", "layers.2.after"),
        ("weight", "matmul_13", "layers.2.up"),
    ],
)
def test_a_mistake_is_named(original, compared, mistake, there, in_reference):
    found = compared(mistake)
    assert not found
    first = found.first
    assert (first.candidate, first.reference, first.nodes) == ("blocks.2", in_reference, (there,))
    assert str(first).startswith("blocks.2: ")
    assert found.table.loc[there, "status"] == "parts here"
    assert found.modules.loc["blocks.1", "status"] == "agrees"
    assert found.modules.loc["blocks.2", "status"] == "parts here"
    assert found.modules.loc["blocks.3", "status"] in ("differs", "no partner")
    port = found.alignment.transformed.module
    assert fxlab.first_divergence(original, port, (IDS,)).node == there


def test_a_step_that_is_left_out_is_named_where_it_belongs(compared):
    first = compared("residual").first
    assert (first.candidate, first.nodes, first.reference_nodes) == ("blocks.2", (), ("add_5",))
    assert "a step is missing" in str(first)
    more = fxlab.compare(nn.ReLU(), lambda x: x.relu() + 1, torch.randn(3)).alignment
    assert str(more) == "The graphs part at add. (2 of 3 nodes have a partner.)"


def test_a_function_in_place_of_a_submodule_is_named():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.ModuleList(each) for each in reference)

        def forward(self, x):
            for index, (first, _, last) in enumerate(self.blocks):
                x = last(F.gelu(first(x)) if index else first(x).relu())
            return x

    reference = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(2)))
    first = fxlab.compare(reference.eval(), Flat().eval(), torch.randn(3, 4)).first
    assert (first.nodes, first.reference) == (("gelu",), "1.1")


def test_the_table_goes_on_behind_the_mistake(compared):
    table = compared("gelu").table
    behind = table[table["status"] == "differs"]
    assert behind.loc["blocks_3_ln2", "reference"] == "layers_3_after"
    assert 0 < behind.loc["blocks_3_ln2", "accumulated"] < 1


def test_layers_that_are_exchanged_are_told_by_their_weights(model):
    port = Port(model)
    port.blocks[1], port.blocks[2] = port.blocks[2], port.blocks[1]
    found = fxlab.compare(model, port.eval(), {"ids": IDS})
    assert found.first.candidate == "blocks.1"
    rows = found.weights_table
    assert rows.loc["blocks.1.o.weight", ["reference", "status"]].tolist() == [
        "layers.2.out.weight",
        "wrong layer",
    ]
    assert "Weights: layers.1 and layers.2 are exchanged" in str(found)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_exported_decomposed_and_captured_graphs_agree(model, original):
    program = torch.export.export(model, (IDS,))
    capture = fxlab.Capture()
    torch.compile(copy.deepcopy(model), backend=capture)(IDS)
    for other in (program, program.run_decompositions(), capture.graphs[0]):
        found = fxlab.compare(original, other, (IDS,))
        assert found.agrees
        assert found.first is None


class Positions(nn.Module):
    """Numbers that no input reaches but by its length."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.linspace(1, 2, 8))
        self.scale, self.first = 1.0, 0

    def forward(self, length):
        at = torch.arange(self.first, length + self.first)[:, None] * self.steps
        return at.cos() * self.scale


class Turned(nn.Module):
    """Attention that is written out, and knows positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(30, 8), Positions()
        self.values = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, ids):
        x, at = self.embed(ids), self.positions(ids.shape[1])
        hidden = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        for value in self.values:
            scores = self.scored(x, at).masked_fill(hidden, -torch.inf)
            nothing = ~(scores != -torch.inf).any(-1, keepdim=True)  # as torch writes attention out
            x = x + torch.where(nothing, 0.0, scores.softmax(-1)) @ value(x)
        return x

    def scored(self, x, at):
        return (x * at) @ x.transpose(-2, -1)


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "change",
    [
        lambda positions: setattr(positions, "scale", 1.05),
        lambda positions: setattr(positions, "first", 1),
        lambda positions: positions.steps.mul_(1.01),
    ],
    ids=["scale", "first", "buffer"],
)
def test_the_module_that_makes_other_constants_is_named_and_not_what_reads_them(change):
    model = Turned().eval()
    wrong = copy.deepcopy(model)
    change(wrong.positions)
    assert fxlab.compare(model, copy.deepcopy(model), IDS).first is None
    found = fxlab.compare(model, wrong, IDS).first
    assert (found.candidate, found.reference) == ("positions", "positions")


class Hotter(Turned):
    def scored(self, x, at):
        return super().scored(x, at) * 1.1


def test_a_comparison_that_gives_the_same_does_not_make_wrong_scores_right():
    model = Turned().eval()
    wrong = copy.deepcopy(model)
    wrong.__class__ = Hotter
    found = fxlab.compare(model, wrong, IDS).first
    assert found.nodes == ("mul_3",)
    assert found.reads == ("matmul",)


@pytest.mark.weekly
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
    first, second = (fxlab.symbolic_trace(each, inputs) for each in (first, second))
    assert fxlab.compare(first, second, inputs).agrees
    name, weight = next(
        (n, p)
        for n, p in second.named_parameters()
        if ("1" in n and n.endswith("v_proj.weight")) or n.endswith("1.attention.self.value.weight")
    )
    with torch.no_grad():
        weight[0] *= 1.01
    found = fxlab.compare(first, second, inputs)
    assert f"{found.first.candidate}.weight" == name
    assert [(each.candidate, each.status) for each in found.odd_weights] == [(name, "other values")]


@pytest.mark.weekly
@pytest.mark.parametrize("mistake", ["", "scale"])
def test_a_merged_adapter_is_right_or_wrong(model, mistake):
    class Adapted(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.base = linear
            self.a = nn.Parameter(torch.randn(2, linear.in_features))
            self.b = nn.Parameter(torch.randn(linear.out_features, 2))

        def forward(self, x):
            return self.base(x) + 0.5 * F.linear(F.linear(x, self.a), self.b)

    adapted, merged = copy.deepcopy(model), copy.deepcopy(model)
    for index, (layer, other) in enumerate(zip(adapted.layers, merged.layers, strict=True)):
        layer.query = Adapted(layer.query)
        scale = 1.0 if mistake and index == 1 else 0.5
        with torch.no_grad():
            other.query.weight += scale * (layer.query.b @ layer.query.a)
    found = fxlab.compare(adapted, merged, (IDS,))
    assert found.agrees is (not mistake)
    assert (found.first and found.first.candidate) == ("layers.1.query" if mistake else None)


class Two(nn.Module):
    def __init__(self, exchanged=False):
        super().__init__()
        self.exchanged = exchanged

    def forward(self, x, y):
        results = x + y, x * y
        return results[::-1] if self.exchanged else results


PAIR = {"x": torch.randn(3, generator=torch.Generator().manual_seed(0)), "y": torch.ones(3) / 3}


def test_outputs_are_paired_as_asked():
    assert not fxlab.compare(Two(), Two(exchanged=True), PAIR)
    found = fxlab.compare(Two(), Two(exchanged=True), PAIR, outputs={0: 1, "1": 0})
    assert found
    assert list(found.verdict.outputs) == ["0", "1"]


def test_outputs_that_are_exchanged_differ():
    found = fxlab.compare(lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin()), torch.randn(3))
    assert not found
    assert "All values have a partner, but 0, 1 is another one" in str(found)


def test_elements_that_are_mixed_up_in_one_shape_are_named():
    def right(x):
        return (x.unflatten(-1, (2, 4)).transpose(0, 1).reshape(2, 3, 4) * 2).softmax(-1)

    def wrong(x):
        return (x.reshape(2, 3, 4) * 2).softmax(-1)

    found = fxlab.compare(right, wrong, torch.randn(3, 8))
    assert not found
    assert found.first.nodes == ("mul",)  # what is reshaped is what the other unflattens


def test_hidden_units_in_another_order_are_other_values():
    model, order = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), torch.arange(8).roll(3)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight[:], other[0].bias[:] = model[0].weight[order], model[0].bias[order]
        other[2].weight[:] = model[2].weight[:, order]
    found = fxlab.compare(model, other, torch.randn(3, 4))
    assert found
    assert found.modules["status"].tolist() == ["no partner", "no partner", "agrees"]
    assert {*found.table["status"]} == {"no partner", "agrees"}


def test_what_only_one_returns_is_told_and_not_compared():
    found = fxlab.compare(lambda x: (x + 1, x * 2), lambda x: x + 1, torch.randn(3))
    assert found
    assert found.alignment.only_in_one == ("1",)
    assert "only the reference has the outputs 1, not compared" in str(found)


def test_other_outputs_are_paired_if_they_have_as_many_elements():
    found = fxlab.compare(lambda x: {"kept": x[:1], "sum": x + 1}, lambda x: (x + 1, x[:2]), torch.randn(5))
    assert found
    assert [*found.verdict.outputs] == ["sum"]
    assert set(found.alignment.only_in_one) == {"kept", "1"}


def test_a_square_kernel_that_is_transposed_is_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 2)).eval()
    other = copy.deepcopy(model)
    other[2].weight = nn.Parameter(model[2].weight.transpose(2, 3).contiguous())
    found = fxlab.compare(model, other, torch.randn(1, 3, 8, 8))
    assert found.first.candidate == "2"
    assert [str(each) for each in found.odd_weights] == ["2.weight: transposed (2.weight), within one shape"]
    assert "Weights: 2.weight: transposed" in str(found)


def test_inputs_go_by_name_or_in_their_order():
    class Port(nn.Module):
        def forward(self, y, first):
            return first + y, first * y

    assert fxlab.compare(Two(), Port(), PAIR)
    other = {"y": PAIR["y"], "first": PAIR["x"]}
    assert fxlab.compare(Two(), Port(), PAIR, candidate_inputs=other)
    found = fxlab.compare(lambda x, y: x * 2, lambda x: x + x, PAIR)
    assert found.inputs_left == ("y",)
    assert "does not take y" in str(found)
    assert found.session.verdict()


class Wrong(torch.autograd.Function):
    """The same value, and a gradient that is not its own."""

    @staticmethod
    def forward(ctx, x):
        return F.gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


@pytest.mark.often(2)
@pytest.mark.parametrize("mistake", ["", "gradient", "detach"])
def test_gradients_are_compared_if_they_are_asked_for(model, mistake):
    class Layers(PortedLayer):
        def forward(self, x):
            q, k, v = (self.ln1(x) @ self.qkv + self.qkv_bias).chunk(3, -1)
            q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in (q, k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + self.o(a)
            h = self.ln2(x) @ self.w1 + self.b1
            h = Wrong.apply(h) if self.mistake == "gradient" else F.gelu(h)
            h = h @ self.w2 + self.b2
            return x + (h.detach() if self.mistake == "detach" else h)

    port = Port(model)
    for index, layer in enumerate(model.layers):
        port.blocks[index] = Layers(layer, mistake if index == 2 else "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fxlab.compare(model, port.eval(), {"ids": IDS}, gradients=True)
    assert found.agrees is (not mistake)
    assert "gradient of layers.0.query.bias" not in found.verdict.outputs  # merged with others
    merged = [path for path in found.verdict.outputs if "(merged in blocks.0.qkv" in path]
    assert len(merged) == 2
    statuses = {found.verdict.outputs[path].status for path in merged}
    assert (statuses == {"different"}) is bool(mistake)
    assert found.verdict.outputs["gradient of last.weight"].status != "different"
    if mistake:
        assert found.first.is_backward
        assert found.first.candidate == "blocks.2"
        assert "the gradient of" in str(found)


class OwnNorm(nn.Module):
    def __init__(self, is_naive):
        super().__init__()
        self.is_naive = is_naive

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        naive = (x * x).mean(-1, keepdim=True) - mean * mean
        variance = naive if self.is_naive else (x - mean).square().mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5)


class Normed(nn.Module):
    def __init__(self, is_naive):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.norms, self.down = nn.Linear(16, 16), nn.ModuleList(), nn.Linear(16, 4)
        self.norms.extend([OwnNorm(False), OwnNorm(is_naive)])

    def forward(self, x):
        x = self.norms[1](self.norms[0](self.up(x)) + 300)
        # Behind the place that rounds worse come steps without a counterpart.
        return self.down(1 - 2 / ((x * 2).exp() + 1) if self.norms[1].is_naive else x.tanh())


def test_the_place_that_only_rounds_worse_is_named():
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(1))
    found = fxlab.compare(Normed(False), Normed(True), x)
    assert not found.agrees
    assert found.first.candidate == found.first.reference == "norms.1"
    assert found.first.errors[0] > 100 * found.first.errors[1]
    assert "rounds worse" in str(found.first)


def test_models_that_draw_are_compared_on_the_same_numbers():
    class Drops(nn.Module):
        def __init__(self, linear, share=0.5):
            super().__init__()
            self.linear, self.share = linear, share

        def forward(self, x):
            return self.linear(F.dropout(x, self.share, training=True)) * 2

    linear, x = nn.Linear(4, 4), torch.randn(3, 4)
    assert fxlab.compare(Drops(linear), nn.Sequential(nn.Dropout(0.5), linear, Double()).train(), x)
    found = fxlab.compare(Drops(linear), Drops(linear, 0.4), x)
    assert not found
    assert found.first.nodes == ("dropout",)


class Double(nn.Module):
    def forward(self, x):
        return x + x


def test_both_stand_in_one_session(compared, tmp_path):
    found = compared("gelu")
    session = found.session
    assert session.verdict().reason.startswith("logits: a different function")
    assert compared().session.verdict()
    table = fxlab.compare_nodes(session.original, session.graph_module, session.inputs)
    assert table.loc["blocks_1_o", "original"] == "blocks_1_o"  # what is shown has one name in both
    assert table.loc["blocks_1_o", "accumulated"] < 1e-5
    changed = fxlab.graph_diff(session.original, session.graph_module)["change"]
    assert "gelu_2" in changed.index
    assert not any("layers.1" in str(row) or "blocks.1" in str(row) for row in changed.index)
    agree = known_to_agree(session.original, session.graph_module)
    assert "blocks_1_o" in agree
    assert "gelu_2" not in agree
    assert session.original is not found.alignment.original.module
    page = fxlab.report(session, tmp_path / "both.html")
    assert "gelu_2" in page.read_text()
    assert json.loads(json.dumps(found.as_dict()))["first"]["candidate"] == "blocks.2"
    assert "blocks.2" in found._repr_html_()
    assert len(repr(found).splitlines()) <= 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"outputs": {"sum": 0}}, ValueError, "no output 'sum'"),
        ({"outputs": ["sum"]}, TypeError, "mapping of outputs"),
        ({"candidate_inputs": 3}, TypeError, "inputs: expected"),
    ],
)
def test_wrong_arguments_are_told(options, error, words):
    with pytest.raises(error, match=words):
        fxlab.compare(Two(), Two(), PAIR, **options)


def test_models_without_weights_are_refused_in_words(model):
    with pytest.raises(ValueError, match="candidate: it is on the meta device"):
        fxlab.compare(model, copy.deepcopy(model).to("meta"), (IDS,))


@given(st.integers(0, 10_000), st.permutations(range(4)), st.sampled_from([torch.float64, torch.float32]))
def test_a_fingerprint_is_that_of_the_elements(seed, order, dtype):
    tensor = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed)).to(dtype)
    mine = Fingerprint.of(tensor)
    for other in (tensor.permute(order), tensor.flatten(), tensor.to(torch.float64)[None]):
        assert mine.is_like(Fingerprint.of(other))
    for scale in (1e-6, 1.0):
        assert not Fingerprint.of(tensor * scale).is_like(Fingerprint.of(tensor * scale * 2))
    changed = tensor.clone()
    changed[tuple(seed % size for size in tensor.shape)] += 1e-3
    found = Found()
    found.add(mine, 5)
    assert not mine.is_like(Fingerprint.of(changed))
    assert list(found.like(Fingerprint.of(tensor.permute(order)))) == [[5]]
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


def test_the_order_of_the_last_of_many_elements_counts():
    many = torch.randn(2**15 + 5, generator=torch.Generator().manual_seed(0))
    turned = torch.cat([many[:-3], many[-3:].flip(0)])
    ours, other, negative = map(Fingerprint.of, (many, turned, -many))
    assert ours.is_like(other)
    assert not ours.is_in_order_of(other)
    torch.testing.assert_close(ours.flat, -negative.flat)


@pytest.mark.weekly
def test_two_models_stand_side_by_side_with_one_name_for_one_value(model):
    session = fxlab.compare(model, Port(model, "gelu").eval(), {"ids": IDS}).session
    inspector = fxlab.inspect(session)
    assert inspector.panes == [0, 1]
    inspector.close()
    reference, port = session.stages
    pairs = match_nodes(reference, port)
    assert all(before.name == node.name for node, before in pairs.originals.items())
    both = {node.name for node in reference.graph.nodes} & {node.name for node in port.graph.nodes}
    assert both == {node.name for node in pairs.originals}
    assert "gelu_2" in session.applied[0].description


def test_a_step_is_not_measured_against_another_that_happens_to_be_as_large():
    class Reference(nn.Module):
        def forward(self, q):
            return (0.5 * (q @ q.mT)).softmax(-1) @ q

    class Port(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q, scale=0.7)

    first = fxlab.compare(Reference(), Port(), torch.randn(2, 4, 4)).first
    assert (first.nodes, first.reference_nodes) == (("scaled_dot_product_attention",), ("matmul",))
    assert first.error is None
    assert "apart" not in str(first)


def test_a_model_in_another_dtype_is_compared_on_inputs_that_both_take():
    original, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(3, 8)
    half = copy.deepcopy(original).to(torch.bfloat16)
    for inputs in (x, {"input": x}):
        found = fxlab.compare(original, half, inputs)
        assert found
        assert found.notes == ("inputs are cast to bfloat16, the dtype of the candidate's weights",)
        assert next(iter(fxlab.compare(original, half, (x,)).candidate_inputs)).dtype is torch.bfloat16
    half[2].weight.data *= 1.5
    assert fxlab.compare(original, half, x).first.candidate == "2"
    assert not fxlab.compare(original, copy.deepcopy(original), x).notes


def test_outputs_without_numbers_are_no_difference_in_words():
    found = fxlab.compare(lambda x: x * torch.nan, lambda x: x * torch.nan, torch.ones(2))
    assert str(found).startswith("No verdict: nothing compared")
    assert "agree" not in str(found)
    found = fxlab.compare(lambda x: x * 2, lambda x: (x * 2).reshape(-1), torch.ones(2, 3).cumsum(0))
    assert "the shapes differ" in str(found)
    assert "agree" not in str(found)


@pytest.mark.often(1)
@pytest.mark.parametrize("inputs", [(IDS.double(), IDS.double()), {"x": IDS.double(), "y": IDS.double()}])
def test_writes_into_inputs_are_compared(inputs):
    def writes(x, y):
        return x.add_(1) * 2 + y

    def writes_as_well(*args, **kwargs):
        x, y = (*args, *kwargs.values())
        return x.add_(1) * 2 + y

    def writes_nothing(x, y):
        return (x + 1) * 2 + y

    assert fxlab.compare(writes, writes_as_well, inputs).same_bits
    for pair in ((writes, writes_nothing), (writes_nothing, writes)):
        found = fxlab.compare(*pair, inputs)
        assert not found.agrees
        assert found.verdict.outputs["written input x"].status == "different"


def test_writes_without_a_counterpart_are_named():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return x.add_(1)

    found = fxlab.compare(lambda x: x + 1, Counts(), (torch.ones(3),), candidate_inputs=(torch.ones(3, 1),))
    (note,) = found.notes
    assert (
        note == "not compared, without a counterpart: written input x, written state calls of the candidate"
    )
    assert note in str(found)


def test_a_tensor_fills_its_memory_if_its_elements_lie_side_by_side():
    for shape, stride in (((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 1), (1, 9))):
        assert fills_its_memory(shape, stride)
    assert not fills_its_memory((2, 3), (4, 1))
