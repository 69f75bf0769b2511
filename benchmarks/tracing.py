"""Tracing against ``torch.export``, which gives a flat graph of ATen operators."""

from collections.abc import Iterator

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import fxlab
from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    small = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 1000}
    models = {
        "trace BERT-base": BertModel(BertConfig()),
        "trace a Llama of 32 layers": LlamaModel(LlamaConfig(num_hidden_layers=32, use_cache=False, **small)),
    }
    for task, model in models.items():
        model.eval()
        inputs = fxlab.example_inputs(model)
        yield Comparison(
            task,
            "torch.export.export",
            lambda model=model, inputs=inputs: fxlab.symbolic_trace(model, inputs, check=False),
            lambda model=model, inputs=inputs: torch.export.export(model, (), inputs),
            rounds=3,
        )
