"""FlexAttention, with functions of a model's own, as a node."""

import pickle

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from transformers import LlamaConfig, LlamaModel

import fxlab

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without", "ignore::fxlab.TraceWarning")


def plain(model, heads, documents):
    return flex_attention(heads, heads, heads)


def with_weights(model, heads, documents):
    def score(score, batch, head, query, key):
        return torch.tanh(score / model.cap) * model.cap + model.slopes[head] * (query - key)

    return flex_attention(heads, heads[:, :2], heads[:, :2], score, scale=0.3, enable_gqa=True)


def with_more_results(model, heads, documents):
    return flex_attention(heads, heads, heads, return_aux=AuxRequest(lse=True))


def with_a_mask(model, heads, documents):
    def mask(batch, head, query, key):
        return (documents[batch, query] == documents[batch, key]) & (query >= key)

    size = heads.shape[2]
    blocks = create_block_mask(mask, heads.shape[0], None, size, size, device="cpu")
    return flex_attention(heads, heads, heads, block_mask=blocks)


class Attends(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.slopes = nn.Linear(16, 16), nn.Parameter(torch.randn(4))
        self.cap, self.function = 5.0, function

    def forward(self, x, documents):
        return self.function(self, self.linear(x).unflatten(-1, (4, -1)).transpose(1, 2), documents)


def inputs(batch, length):
    return torch.randn(batch, length, 16), torch.randint(0, 2, (batch, length))


@pytest.mark.weekly
@torch.no_grad()
@pytest.mark.parametrize(
    "function",
    [
        with_more_results,
        with_a_mask,
        *(pytest.param(each, marks=pytest.mark.weekly) for each in (plain, with_weights)),
    ],
)
def test_it_is_a_node_at_any_size(function):
    model = Attends(function)
    session = fxlab.Session(model, inputs(2, 8))
    assert session.original.meta["trace"].rung == "dynamic shapes"
    assert "flex_attention" in {node.name for node in session.original.graph.nodes}
    session.apply("fuse-bias-in-linear")
    assert session.verdict()
    again = pickle.loads(pickle.dumps(session.original))
    for graph, given in ((session.original, inputs(3, 13)), (again, inputs(2, 8))):
        actual, expected = (torch.utils._pytree.tree_leaves(m(*given)) for m in (graph, model))
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_gradients_are_refused_as_torch_refuses_them_on_a_cpu():
    model = Attends(plain)
    traced = fxlab.symbolic_trace(model, inputs(2, 8))
    for module in (model, traced):
        with pytest.raises((NotImplementedError, AssertionError)):
            module(*inputs(2, 8))
    with torch.no_grad():
        given = inputs(2, 5)
        assert torch.equal(traced(*given), model(*given))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@torch.no_grad()
def test_models_of_transformers_are_traced_with_padding():
    config = LlamaConfig(
        vocab_size=30,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        attn_implementation="flex_attention",
    )
    ids = torch.randint(0, 30, (2, 6))
    padded = {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])}
    traced = fxlab.symbolic_trace(LlamaModel(config).eval(), padded)
    (other,) = (f for f in traced.meta["trace"].of_kind("check") if "= 3" in f.what)
    assert other.detail == "same bits as the model"
