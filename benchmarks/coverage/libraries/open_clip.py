"""Open_clip's towers: ViT and ResNet, CoCa, text of transformers, all with small settings."""

from __future__ import annotations

from typing import Any

from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP

from benchmarks.coverage.libraries.rows import Row, Values

_VISION: dict[str, Any] = {"image_size": 64, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
_TEXT: dict[str, Any] = {"context_length": 12, "vocab_size": 64, "width": 32, "heads": 2, "layers": 2}
_INPUTS = {
    "image": Values(("batch", 3, 64, 64)),
    "text": Values(("texts", 12), below=64),
}
_SIZES = {"batch": 2, "texts": 3}

ROWS = [
    Row("CLIP, ViT", lambda: CLIP(32, vision_cfg=_VISION, text_cfg=_TEXT), _INPUTS, _SIZES),
    Row(
        "CLIP, QuickGELU",
        lambda: CLIP(32, vision_cfg=_VISION, text_cfg=_TEXT, quick_gelu=True),
        _INPUTS,
        _SIZES,
    ),
    Row(
        "CLIP, ResNet",
        lambda: CLIP(32, vision_cfg={"image_size": 64, "layers": [1, 1, 1, 1], "width": 16}, text_cfg=_TEXT),
        _INPUTS,
        _SIZES,
    ),
    Row(
        "CLIP, pooled by attention",
        lambda: CLIP(
            32, vision_cfg={**_VISION, "attentional_pool": True, "attn_pooler_heads": 2}, text_cfg=_TEXT
        ),
        _INPUTS,
        _SIZES,
    ),
    Row(
        "CLIP, timm",
        lambda: CustomTextCLIP(
            32,
            vision_cfg={
                "image_size": 64,
                "timm_model_name": "test_vit",
                "timm_pool": "",
                "timm_proj": "linear",
            },
            text_cfg=_TEXT,
        ),
        _INPUTS,
        _SIZES,
    ),
    Row("SigLIP's loss bias", lambda: CLIP(32, _VISION, _TEXT, init_logit_bias=-10.0), _INPUTS, _SIZES),
    Row(
        "CoCa",
        lambda: CoCa(
            32,
            multimodal_cfg={**_TEXT, "width": 32},
            text_cfg={**_TEXT, "embed_cls": True, "output_tokens": True},
            vision_cfg={**_VISION, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        ),
        {"image": Values(("batch", 3, 64, 64)), "text": Values(("batch", 12), below=64)},
        {"batch": 2},
    ),
]
