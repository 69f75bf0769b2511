"""Sentence-transformers: each way to pool, and what may follow."""

from __future__ import annotations

from functools import partial

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, LayerNorm, Normalize, Pooling, WeightedLayerPooling
from torch import nn
from transformers import BertConfig, BertModel

from benchmarks.coverage.libraries.rows import Row, Values

_INPUTS = {
    "input": {
        "input_ids": Values(("batch", "length"), below=64),
        "attention_mask": Values(("batch", "length"), below=2),
    }
}
_SIZES = {"batch": 2, "length": 8}
_MODES = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


class _Words(nn.Module):
    """A transformer as sentence-transformers calls it, without the tokenizer."""

    def __init__(self) -> None:
        super().__init__()
        self.auto_model = BertModel(
            BertConfig(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=2,
                output_hidden_states=True,
            )
        )

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        output = self.auto_model(**features)
        found = {"token_embeddings": output[0], "all_layer_embeddings": output.hidden_states}
        return features | found


def _pooled(mode: str) -> nn.Module:
    return SentenceTransformer(modules=[_Words(), Pooling(32, pooling_mode=mode)], device="cpu")


def _followed() -> nn.Module:
    after = [Dense(32, 16), LayerNorm(16), Normalize()]
    return SentenceTransformer(modules=[_Words(), Pooling(32), *after], device="cpu")


def _of_layers() -> nn.Module:
    layers = WeightedLayerPooling(32, num_hidden_layers=2, layer_start=1)
    return SentenceTransformer(modules=[_Words(), layers, Pooling(32)], device="cpu")


ROWS = [
    *(Row(f"pooling by {mode}", partial(_pooled, mode), _INPUTS, _SIZES) for mode in _MODES),
    Row("dense, norm, normalised", _followed, _INPUTS, _SIZES),
    Row("weighted layers", _of_layers, _INPUTS, _SIZES),
]
