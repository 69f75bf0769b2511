"""Tiny models whose linears torchao has quantized, in each way that runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torchao import quantization as q
from transformers import BertConfig, BertModel

from benchmarks.coverage.libraries.rows import Row, Values

_CONFIGS: dict[str, Callable[[], Any]] = {
    "int8 weights": q.Int8WeightOnlyConfig,
    "int8 weights and activations": q.Int8DynamicActivationInt8WeightConfig,
    "float8 weights": q.Float8WeightOnlyConfig,
}


def _linears(config: Callable[[], Any]) -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    q.quantize_(model, config())
    return model


def _bert(config: Callable[[], Any]) -> nn.Module:
    settings = BertConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=2
    )
    model = BertModel(settings).eval()
    q.quantize_(model, config())
    return model


_TOKENS = {"input_ids": Values(("batch", "length"), below=64)}

ROWS = [
    *(
        Row(
            f"linears, {words}",
            partial(_linears, config),
            (Values(("batch", 64), dtype=torch.float32),),
            {"batch": 4},
        )
        for words, config in _CONFIGS.items()
    ),
    *(
        Row(f"BERT, {words}", partial(_bert, config), _TOKENS, {"batch": 2, "length": 8})
        for words, config in _CONFIGS.items()
    ),
]
