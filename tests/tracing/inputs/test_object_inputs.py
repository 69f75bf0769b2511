"""Inputs that are objects: caches of keys and values, and people's own classes."""

import copy
import dataclasses
import enum
import pickle

import pytest
import torch
import transformers
from agreement import assert_agree
from torch import nn
from zoo import tiny_of_type

import fxlab
from fxlab import symbolic_trace
from fxlab.drawing import View, build_hierarchy, render
from fxlab.tracing.report import DYNAMIC
from fxlab.validation import input_variants
from fxlab.values.tensors import tensors_by_path

pytestmark = [pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning"), pytest.mark.slow]


def tokens(*shape):
    return torch.randint(1, 40, shape, generator=torch.Generator().manual_seed(sum(shape)))


@torch.no_grad()
def step_of(model, batch, length, cache=None):
    """Return the inputs of a step of decoding, after a text of a length."""
    output = model(input_ids=tokens(batch, length), use_cache=True, past_key_values=cache)
    return {"input_ids": tokens(batch, 1), "past_key_values": output.past_key_values}


@pytest.fixture(scope="module")
def llama():
    return tiny_of_type("llama", task="causal-lm")


@pytest.fixture(scope="module")
def traced(llama):
    return symbolic_trace(llama, step_of(llama, 2, 5))


@pytest.mark.weekly
@pytest.mark.parametrize(
    "model_type",
    [
        "lfm2",
        *(pytest.param(m, marks=pytest.mark.weekly) for m in ("llama", "gpt2", "opt", "qwen3", "qwen3_next")),
    ],
)
def test_a_step_of_decoding_holds_for_texts_of_any_length_and_number(model_type):
    model = tiny_of_type(model_type, task="causal-lm")
    traced = symbolic_trace(model, step_of(model, 2, 5))
    assert traced.meta["trace"].rung == DYNAMIC
    for batch, length in ((2, 5), (3, 8), (1, 2)):
        assert_agree(traced, model, step_of(model, batch, length))


def test_the_given_cache_stays_as_it_was(llama):
    inputs = step_of(llama, 2, 5)
    layers = [(layer, layer.keys, layer.keys.clone()) for layer in inputs["past_key_values"].layers]
    traced = symbolic_trace(llama, inputs, check=False)
    session = fxlab.Session(traced, inputs)
    session.apply("merge-linears")
    assert session.verdict().agrees
    assert not fxlab.compare_outputs(session.original, session.graph_module, session.inputs).empty
    variants = input_variants(inputs)
    assert {"batch of 1", "batch of 5"} < variants.keys()
    assert variants["batch of 5"]["past_key_values"].layers[0].keys.shape[0] == 5
    assert session.verdict(variants=True).by_inputs["batch of 5"].status == "same bits"
    assert not fxlab.compare_nodes(session.original, session.graph_module, inputs).empty
    with torch.no_grad():
        output = traced(**inputs)
    assert output.past_key_values is not inputs["past_key_values"]
    for layer, keys, values in layers:
        assert layer.keys is keys
        assert torch.equal(keys, values)


@pytest.mark.weekly
def test_what_the_model_writes_into_a_static_cache_the_graph_writes(llama):
    def filled():
        return step_of(llama, 2, 5, transformers.StaticCache(config=llama.config, max_cache_len=12))

    traced = symbolic_trace(llama, filled(), check=False)
    assert_agree(traced, llama, filled())
    ours, theirs = filled(), filled()
    with torch.no_grad():
        traced(**ours)
        llama(**theirs)
    for one, other in zip(ours["past_key_values"].layers, theirs["past_key_values"].layers, strict=True):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.values, other.values)


@pytest.mark.weekly
def test_encoder_and_decoder_have_a_cache_each():
    model = tiny_of_type("t5", task="seq2seq-lm")

    @torch.no_grad()
    def inputs(batch, length, decoded):
        states = model.encoder(input_ids=tokens(batch, length))
        output = model(encoder_outputs=states, decoder_input_ids=tokens(batch, decoded), use_cache=True)
        step = {"decoder_input_ids": tokens(batch, 1), "past_key_values": output.past_key_values}
        return {"encoder_outputs": states, **step}

    traced = symbolic_trace(model, inputs(2, 5, 3), check=False)
    assert_agree(traced, model, inputs(2, 5, 3))
    assert_agree(traced, model, inputs(3, 6, 4))


def test_a_cache_may_be_empty(llama):
    traced = symbolic_trace(
        llama, {"input_ids": tokens(2, 5), "past_key_values": transformers.DynamicCache()}, check=False
    )
    given = {"input_ids": tokens(3, 6), "past_key_values": transformers.DynamicCache()}
    expected, found = (tensors_by_path(module(**copy.deepcopy(given))) for module in (llama, traced))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[path], tensor) for path, tensor in expected.items())


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    more: list
    scale: float = 2.0
    name: str = "a"


class Other:
    def __init__(self, x, more):
        self.x, self.more, self.scale, self.name = x, more, 2.0, "a"


class OfBatch(nn.Module):
    def forward(self, batch):
        total = batch.x * batch.scale + batch.more[0]["y"]
        return total.to(batch.x.dtype)


def batch_of(rows, **settings):
    return Batch(torch.randn(rows, 3), [{"y": torch.randn(rows, 3)}], **settings)


def test_an_object_of_one_s_own_is_taken_apart():
    model = OfBatch()
    traced = symbolic_trace(model, (batch_of(4),), check=False)
    assert_agree(traced, model, (batch_of(6),))
    again = pickle.loads(pickle.dumps(traced))
    assert_agree(again, model, (batch_of(5),))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: batch_of(4, scale=3.0), r"batch\.scale = 2\.0 only"),
        (lambda: Other(torch.randn(4, 3), [{"y": torch.randn(4, 3)}]), "batch of class Batch only"),
        (lambda: Batch(torch.randn(4, 3), []), r"batch\.more of 1 items only"),
        (lambda: Batch(torch.randn(4, 3), [{}]), r"batch\.more\[0\] with the keys 'y' only"),
        (lambda: Batch(torch.randn(4, 3), [{"y": 1.0}]), r"batch\.more\[0\]\['y'\] as a tensor only"),
        (
            lambda: Batch(torch.randn(4, 3).double(), [{"y": torch.randn(4, 3)}]),
            r"batch\.x of dtype torch\.f",
        ),
    ],
)
def test_other_objects_are_refused(other, words):
    traced = symbolic_trace(OfBatch(), (batch_of(4),))
    with pytest.raises(AssertionError, match=f"traced for {words}"):
        traced(other())


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Named(dict):
    """Gives its items as attributes, and raises another error than objects do."""

    __getattr__ = dict.__getitem__


def test_enumerations_slices_and_shapes_are_held():
    class Reduces(nn.Module):
        def forward(self, x, how):
            mode, rows, shape = how
            x = x[rows].view(shape)
            return x.sum() if mode is Mode.SUM else x.mean()

    how = [Mode.SUM, slice(0, 2), torch.Size([3, 2])]
    traced = symbolic_trace(Reduces(), (torch.randn(4, 3), how))
    x = torch.randn(4, 3)
    assert torch.equal(traced(x, how), Reduces()(x, how))
    for other in ([Mode.MEAN, *how[1:]], [Mode.SUM, slice(0, 1), how[2]], [*how[:2], torch.Size([2, 3])]):
        with pytest.raises(AssertionError, match=r"traced for how\[\d\]"):
            traced(x, other)


def test_a_mapping_may_raise_whatever_it_likes_for_an_attribute():
    class Reads(nn.Module):
        def forward(self, batch):
            return batch.x * 2

    traced = symbolic_trace(Reads(), (Named(x=torch.randn(2, 3)),), check=False)
    assert_agree(traced, Reads(), (Named(x=torch.randn(5, 3)),))


def test_what_cannot_be_taken_apart_is_named():
    class Holds:
        def __init__(self, what):
            self.x, self.what = torch.ones(3), what

    round_about = Holds(None)
    round_about.what = round_about
    for value, name in (
        (Holds({1}), "set"),
        (Holds(nn.ReLU()), "ReLU"),
        (round_about, "Holds"),
        (int, "type"),
    ):
        with pytest.raises(TypeError, match=f"batch holds a {name}, which a graph cannot take apart"):
            symbolic_trace(OfBatch(), (value,))


def test_a_cache_is_drawn_in_few_boxes():
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=6, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    traced = symbolic_trace(model, step_of(model, 2, 5), check=False)
    view = View.default(build_hierarchy(traced))
    assert len(view.boxes) < 36
    assert ">DynamicCache<" in render(view)
