"""X-transformers: its wrappers, and the variants of attention and positions that it is known for."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from x_transformers import (
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

from benchmarks.coverage.libraries.rows import Row, Values, images, of_side

_WIDTHS: dict[str, Any] = {"dim": 32, "depth": 2, "heads": 2, "attn_dim_head": 16}
_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "rotary, xpos": {"rotary_pos_emb": True, "rotary_xpos": True},
    "ALiBi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
    "T5's relative positions": {"rel_pos_bias": True},
    "dynamic positions": {"dynamic_pos_bias": True},
    "RMSNorm, SwiGLU": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True},
    "flash": {"attn_flash": True},
    "one head of keys": {"attn_one_kv_head": True},
    "normalised queries and keys": {"attn_qk_norm": True},
    "sandwich norm": {"sandwich_norm": True},
    "macaron": {"macaron": True},
    "shifted tokens": {"shift_tokens": 1},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "memory": {"attn_num_mem_kv": 4},
    "gated values": {"attn_gate_values": True},
    "sparse top-k": {"attn_sparse_topk": 4},
}
_TOKENS = {"x": Values(("batch", "length"), below=64)}
_TEXT = {"batch": 2, "length": 8}


def _decoder(variant: dict[str, Any]) -> nn.Module:
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Decoder(**_WIDTHS, **variant))


def _encoder() -> nn.Module:
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Encoder(**_WIDTHS))


ROWS = [
    *(
        Row(f"Decoder, {words}", partial(_decoder, variant), _TOKENS, _TEXT)
        for words, variant in _VARIANTS.items()
    ),
    Row(
        "Encoder",
        _encoder,
        {**_TOKENS, "mask": Values(("batch", "length"), below=2, dtype=torch.bool)},
        _TEXT,
    ),
    Row(
        "ContinuousTransformerWrapper",
        lambda: ContinuousTransformerWrapper(
            dim_in=8, dim_out=8, max_seq_len=32, attn_layers=Encoder(**_WIDTHS)
        ),
        {"x": Values(("batch", "length", 8))},
        _TEXT,
    ),
    Row(
        "ViTransformerWrapper",
        lambda: ViTransformerWrapper(
            image_size=64, patch_size=16, num_classes=5, attn_layers=Encoder(**_WIDTHS)
        ),
        {"img": images()["x"]},
        of_side(64),
    ),
    Row(
        "XTransformer",
        lambda: XTransformer(
            dim=32,
            enc_num_tokens=64,
            enc_depth=1,
            enc_heads=2,
            enc_max_seq_len=32,
            dec_num_tokens=64,
            dec_depth=1,
            dec_heads=2,
            dec_max_seq_len=32,
        ),
        {"src": Values(("batch", "length"), below=64), "tgt": Values(("batch", "words"), below=64)},
        {"batch": 2, "length": 8, "words": 6},
    ),
]
