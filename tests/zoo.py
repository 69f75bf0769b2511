"""Tiny, randomly initialised models of transformers' own architectures."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers as hf
from torch import nn

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
_TEXT = {**_SIZES, "vocab_size": 100}
_IMAGE = {**_SIZES, "image_size": 32, "patch_size": 8}

TEN: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**_TEXT)),
    "roberta": lambda: hf.RobertaModel(hf.RobertaConfig(**_TEXT)),
    "distilbert": lambda: hf.DistilBertModel(
        hf.DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=48, vocab_size=100)
    ),
    "gpt2": lambda: hf.GPT2Model(hf.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)),
    "llama": lambda: hf.LlamaModel(hf.LlamaConfig(**_TEXT, num_key_value_heads=1)),
    "t5": lambda: hf.T5Model(
        hf.T5Config(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=100)
    ),
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**_IMAGE)),
    "resnet": lambda: hf.ResNetModel(
        hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")
    ),
    "clip": lambda: hf.CLIPModel(
        hf.CLIPConfig(text_config=dict(_TEXT), vision_config=dict(_IMAGE), projection_dim=16)
    ),
    "whisper": lambda: hf.WhisperModel(
        hf.WhisperConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_source_positions=20,
            vocab_size=100,
            num_mel_bins=8,
            pad_token_id=0,
            decoder_start_token_id=1,
        )
    ),
}
"""The ten architectures that everything is tried on first."""


def tiny(name: str) -> nn.Module:
    """Return one of the ten, in evaluation mode, with the same weights each time."""
    torch.manual_seed(0)
    return TEN[name]().eval()
