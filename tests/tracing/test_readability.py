"""What a graph looks like, and whether torch's own tools take it."""

import operator
import re

import pytest
import torch
import zoo
from agreement import targets
from transformers import LlamaConfig, LlamaModel

from fxlab import symbolic_trace


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    return zoo.bert(2, attn_implementation="eager")


@pytest.fixture(scope="module")
def traced(bert):
    return symbolic_trace(bert)


def test_calls_are_written_as_the_author_wrote_them(traced):
    assert not re.search(r"_stacklevel|__\w+__|sym_size|aten", traced.code)
    functions = set(targets(traced, "call_function"))
    assert {operator.getitem, operator.add, torch.nn.functional.softmax} <= functions
    assert {"view", "transpose"} <= set(targets(traced, "call_method"))


def test_each_size_is_read_once_and_nothing_is_computed_in_vain(traced):
    sizes = [(n.args[0], n.args[1]) for n in traced.graph.nodes if n.target == "size"]
    assert len(sizes) == len(set(sizes))
    for node in traced.graph.nodes:
        assert node.users or node.op in ("placeholder", "output") or node.is_impure()


@pytest.mark.weekly
def test_equal_layers_are_recorded_alike():
    """What all layers read and was made without gradient is taken out of there where it is made."""
    config = LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, vocab_size=50
    )
    nodes = symbolic_trace(LlamaModel(config).eval()).graph.nodes

    def recorded_in(layer):
        inside = [n for n in nodes if f"layers.{layer}" in n.meta.get("nn_module_stack", {})]
        return [(n.op, str(n.target).replace(f"layers.{layer}.", "")) for n in inside]

    assert recorded_in(0) == recorded_in(1) == recorded_in(2)
    rotary = [n for n in nodes if n.target == "detach"]
    assert rotary
    assert all(list(n.meta["nn_module_stack"]) == ["rotary_emb"] for n in rotary)
