"""Kornia's differentiable image operations, detectors and descriptors of features."""

from __future__ import annotations

from collections.abc import Callable

import kornia as k
import torch
from torch import nn

from benchmarks.coverage.libraries.rows import Row, Values, images, of_side

_GRAY = {"input": Values(("batch", 1, "height", "width"))}
_PATCHES = {"input": Values(("batch", 1, 32, 32))}
_FILTERS: dict[str, Callable[[], nn.Module]] = {
    "GaussianBlur2d": lambda: k.filters.GaussianBlur2d((3, 3), (1.5, 1.5)),
    "BoxBlur": lambda: k.filters.BoxBlur((3, 3)),
    "MedianBlur": lambda: k.filters.MedianBlur((3, 3)),
    "BilateralBlur": lambda: k.filters.BilateralBlur((3, 3), 0.1, (1.0, 1.0)),
    "Laplacian": lambda: k.filters.Laplacian(3),
    "Sobel": k.filters.Sobel,
    "SpatialGradient": k.filters.SpatialGradient,
    "UnsharpMask": lambda: k.filters.UnsharpMask((3, 3), (1.5, 1.5)),
    "MaxBlurPool2D": lambda: k.filters.MaxBlurPool2D(3),
    "RgbToGrayscale": k.color.RgbToGrayscale,
    "RgbToHsv": k.color.RgbToHsv,
    "RgbToLab": k.color.RgbToLab,
    "RgbToYuv": k.color.RgbToYuv,
    "Normalize": lambda: k.enhance.Normalize(0.5, 0.25),
    "AdjustBrightness": lambda: k.enhance.AdjustBrightness(0.2),
    "Rotate": lambda: k.geometry.Rotate(torch.tensor(30.0)),
    "Hflip": k.geometry.Hflip,
    "PyrDown": k.geometry.PyrDown,
    "PyrUp": k.geometry.PyrUp,
    "ScalePyramid": lambda: k.geometry.ScalePyramid(2, 1.6, 16),
    "CenterCrop": lambda: k.augmentation.CenterCrop((16, 16)),
    "Resize": lambda: k.geometry.Resize((24, 24)),
}


def _row(name: str, build: Callable[[], nn.Module]) -> Row:
    return Row(name, build, (images()["x"],), of_side(64))


ROWS = [
    *(_row(name, build) for name, build in _FILTERS.items()),
    Row("Canny", k.filters.Canny, (_GRAY["input"],), of_side(32)),
    Row("CornerHarris", lambda: k.feature.CornerHarris(0.04), (_GRAY["input"],), of_side(32)),
    Row("BlobHessian", k.feature.BlobHessian, (_GRAY["input"],), of_side(32)),
    Row("HardNet", lambda: k.feature.HardNet(pretrained=False), (_PATCHES["input"],), {"batch": 2}),
    Row("HyNet", lambda: k.feature.HyNet(pretrained=False), (_PATCHES["input"],), {"batch": 2}),
    Row("SOSNet", lambda: k.feature.SOSNet(pretrained=False), (_PATCHES["input"],), {"batch": 2}),
    Row("TFeat", lambda: k.feature.TFeat(pretrained=False), (_PATCHES["input"],), {"batch": 2}),
    Row("SIFTDescriptor", lambda: k.feature.SIFTDescriptor(32), (_PATCHES["input"],), {"batch": 2}),
    Row(
        "DeFMO",
        lambda: k.feature.DeFMO(pretrained=False),
        (Values(("batch", 6, "height", "width")),),
        of_side(64, batch=1),
    ),
    Row("KeyNet", lambda: k.feature.KeyNet(pretrained=False), (_GRAY["input"],), of_side(64)),
    Row("SSIM", lambda: k.metrics.SSIM(5), (images()["x"], images()["x"]), of_side(32)),
]
