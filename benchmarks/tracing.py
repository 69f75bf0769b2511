"""Tracing against ``torch.export``, which gives a flat graph of ATen operators; and against itself."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import Dim
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, LlamaModel

import fxlab
from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    small = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 1000}
    models = {
        "trace BERT-base": BertModel(BertConfig()),
        "trace a Llama of 32 layers": LlamaModel(LlamaConfig(num_hidden_layers=32, use_cache=False, **small)),
        "trace Llama-3-8B's configuration on meta": llama_3_8b(),
    }
    for task, model in models.items():
        inputs = fxlab.example_inputs(model.eval())
        yield Comparison(
            task,
            "torch.export.export",
            lambda model=model, inputs=inputs: fxlab.symbolic_trace(model, inputs, check=False),
            lambda model=model, inputs=inputs: exported(model, inputs),
            rounds=3,
        )
    training = LlamaForCausalLM(LlamaConfig(num_hidden_layers=32, use_cache=False, **small)).train()
    tokens = torch.randint(0, 1000, (2, 12))
    batch = {"input_ids": tokens, "labels": tokens}
    yield Comparison(
        "trace a training step of a Llama of 32 layers",
        "torch.export.export of the forward pass",
        lambda: fxlab.trace_step(training, batch),
        lambda: torch.export.export(training, (), dict(batch), strict=False),
        rounds=3,
    )
    short, long = llama_3_8b(layers=8), llama_3_8b(layers=32)
    yield Comparison(
        "trace 32 layers",
        "8 layers, four times",
        lambda: fxlab.symbolic_trace(long),
        lambda: [fxlab.symbolic_trace(short) for _ in range(4)],
        rounds=3,
    )


def llama_3_8b(layers: int = 32) -> LlamaModel:
    """Return a model of the configuration of Llama 3 8B, without weights."""
    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        use_cache=False,
    )
    with torch.device("meta"):
        return LlamaModel(config).eval()


def exported(model: torch.nn.Module, inputs: dict[str, Any]) -> torch.export.ExportedProgram:
    """Export a text model with a dynamic batch size and length."""
    batch, length = Dim("batch", max=1024), Dim("length", max=512)
    shapes = {name: {0: batch, 1: length} for name in inputs}
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)
