"""Each decoder of segmentation-models-pytorch, on a small encoder, and further encoders under one decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import segmentation_models_pytorch as smp
from torch import nn

from benchmarks.coverage.libraries.rows import Row, images, of_side

_DECODERS = (
    "Unet",
    "UnetPlusPlus",
    "MAnet",
    "Linknet",
    "FPN",
    "PSPNet",
    "PAN",
    "DeepLabV3",
    "DeepLabV3Plus",
    "UPerNet",
    "Segformer",
)
_ENCODERS = (
    "timm-efficientnet-b0",
    "mobilenet_v2",
    "mit_b0",
    "densenet121",
    "mobileone_s0",
    "tu-convnext_atto",
)


def _built(decoder: str, encoder: str, **arguments: Any) -> nn.Module:
    return getattr(smp, decoder)(encoder_name=encoder, encoder_weights=None, classes=3, **arguments)


ROWS = [
    *(Row(decoder, partial(_built, decoder, "resnet18"), images(), of_side(128)) for decoder in _DECODERS),
    Row(
        "DPT",
        partial(_built, "DPT", "tu-vit_tiny_patch16_224", decoder_intermediate_channels=(8, 8, 8, 8)),
        images(),
        of_side(224),
    ),
    *(
        Row(f"Unet, {encoder}", partial(_built, "Unet", encoder), images(), of_side(64))
        for encoder in _ENCODERS
    ),
]
