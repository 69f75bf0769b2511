"""Tiny, randomly initialised models of transformers' own architectures."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

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


# Every architecture


_WIDTHS = {
    "hidden_size|d_model|n_embd|embed_dim|dim|hidden_dim|embedding_size|decoder_hidden_size|encoder_hidden"
    "|encoder_hidden_size|out_hidden_size|output_hidden_size|width|model_dim|d_embed|decoder_hidden_dim": 64,
    "intermediate_size|ffn_dim|d_ff|encoder_ffn_dim|decoder_ffn_dim|n_inner|dim_feedforward|ffn_hidden_size"
    "|decoder_intermediate_size|shared_intermediate_size|encoder_intermediate_size": 96,
    "moe_intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size": 32,
    "head_dim|d_kv|attention_head_size|qk_nope_head_dim|v_head_dim|kv_channels|linear_key_head_dim"
    "|linear_value_head_dim|index_head_dim|global_head_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "q_lora_rank|kv_lora_rank": 16,
    "projection_dim|projector_hidden_size": 32,
    "max_2d_position_embeddings": 128,
}
_COUNTS = {
    "num_attention_heads|n_head|num_image_attention_heads|n_heads|num_heads|encoder_attention_heads|decoder_attention_heads"
    "|decoder_num_attention_heads|encoder_num_attention_heads|num_decoder_attention_heads|attention_heads"
    "|linear_num_value_heads|index_n_heads": 4,
    "num_key_value_heads|linear_num_key_heads|num_kv_heads": 2,
    "num_local_experts|num_experts|n_routed_experts|moe_num_experts": 4,
    "num_experts_per_tok|moe_topk|moe_top_k|top_k_experts": 2,
    "n_group|topk_group|n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "index_topk": 4,
}
_LAYERS = (
    r"num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_encoder_layers|depth"
    r"|num_decoder_layers|num_blocks|num_hidden_blocks|decoder_num_hidden_layers|encoder_num_hidden_layers"
    r"|num_encoder_blocks_per_stage"
)
_VOCABULARY = {"vocab_size|vocab_size_per_layer_input|text_vocab_size": 160}
_IMAGES = {"image_size|input_size|img_size": 64, "patch_size": 16}
_LARGEST = 300_000_000
_PLENTY = (_WIDTHS, _COUNTS, _VOCABULARY, _IMAGES)
_EQUAL_HEADS = {**_COUNTS, "num_key_value_heads|linear_num_key_heads|num_kv_heads": 4}
_RUNGS: list[tuple[tuple[dict[str, int], ...], int]] = [
    (_PLENTY, 2),
    ((_WIDTHS, _EQUAL_HEADS, _VOCABULARY, _IMAGES), 8),
    ((_WIDTHS, _COUNTS, _VOCABULARY), 2),
    ((_VOCABULARY, _IMAGES), 2),
    ((_VOCABULARY,), 2),
]


def model_types() -> list[str]:
    """Return the name of every architecture that transformers can make a base model of."""
    return sorted(MODEL_MAPPING_NAMES)


def tiny_of_type(model_type: str, *, shrink: int = 0) -> nn.Module:
    """Return a small model of an architecture, in evaluation mode, with the same weights each time.

    Parameters
    ----------
    model_type
        One of :func:`model_types`.
    shrink
        0 for the smallest; up to 4 for larger ones, of architectures whose settings hang together.
    """
    torch.manual_seed(0)
    config = tiny_config(model_type, shrink=shrink)
    with torch.device("meta"):
        size = sum(p.numel() for p in hf.AutoModel.from_config(copy.deepcopy(config)).parameters())
    if size > _LARGEST:
        raise ValueError(f"the smallest {model_type} that its settings allow has {size:,} parameters")
    return hf.AutoModel.from_config(config).eval()


def tiny_config(model_type: str, *, shrink: int = 0) -> Any:
    """Return a small configuration of an architecture."""
    rules, layers = _RUNGS[shrink]
    return _shrunk(hf.CONFIG_MAPPING[model_type](), rules, layers)


def _shrunk(config: Any, rules: tuple[dict[str, int], ...], layers: int) -> Any:
    given = dict(vars(config))
    changed: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, hf.PretrainedConfig):
            changed[name] = _shrunk(value, rules, layers)
        elif re.fullmatch(_LAYERS, name) and isinstance(value, int):
            changed[name] = min(value, layers)
        elif isinstance(value, int) and not isinstance(value, bool):
            smaller = (n for table in rules for names, n in table.items() if re.fullmatch(names, name))
            changed[name] = min(value, next(smaller, value))
        elif name == "rope_parameters" and isinstance(value, dict) and _WIDTHS in rules:
            changed[name] = {**value, "mrope_section": [4, 2, 2]}
        elif name == "depths" and isinstance(value, list | tuple):
            changed[name] = [1 for _ in value]
        elif (
            _WIDTHS in rules
            and name in ("num_heads", "num_attention_heads")
            and isinstance(value, list | tuple)
        ):
            changed[name] = [2 for _ in value]
    for name, value in changed.items():
        _set(config, name, value)
    heads, width = getattr(config, "num_attention_heads", None), getattr(config, "hidden_size", None)
    if isinstance(heads, int) and isinstance(width, int):
        for name, value in {"num_key_value_heads": heads, "head_dim": width // heads}.items():
            if name in given and given[name] is None:
                _set(config, name, value)
    vocabulary = getattr(config, "vocab_size", None)
    has_layers = any(re.fullmatch(_LAYERS, name) for name in changed)
    for name, value in given.items():
        is_token = re.search(r"_token_(id|index)$|_id$", name) is not None
        if is_token and isinstance(value, int) and isinstance(vocabulary, int) and value >= vocabulary:
            _set(config, name, _token(name))
        elif name.endswith("layer_types") and isinstance(value, list) and has_layers:
            _set(config, name, [*dict.fromkeys(value), *value][:layers])
    return config


def _token(name: str) -> int:
    """Return an id below those of ordinary words, another for each kind of special token."""
    return 1 + sum(map(ord, name)) % 9


def _set(config: Any, name: str, value: Any) -> None:
    with contextlib.suppress(AttributeError, NotImplementedError, TypeError, ValueError):
        setattr(config, name, value)
