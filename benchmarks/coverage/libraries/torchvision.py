"""Torchvision's families: classification, segmentation, video, optical flow and detection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torchvision import models as m

from benchmarks.coverage.libraries.rows import Row, Values, images, of_side

_NO_WEIGHTS: dict[str, Any] = {"weights": None}
_NO_BACKBONE: dict[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": 5}
_VIDEO = {"x": Values(("batch", 3, "frames", "height", "width"))}
_OF_VIDEO = {"batch": 2, "frames": 8, "height": 64, "width": 64}
_CLASSIFIERS = {
    "alexnet": 64,
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_b0": 64,
    "efficientnet_v2_s": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "maxvit_t": 224,
    "mnasnet0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "regnet_x_400mf": 64,
    "regnet_y_400mf": 64,
    "resnet18": 64,
    "resnext50_32x4d": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_0": 64,
    "swin_t": 64,
    "swin_v2_t": 64,
    "vgg11": 64,
    "vit_b_32": 224,
    "wide_resnet50_2": 64,
}
_SEGMENTERS = (
    "deeplabv3_mobilenet_v3_large",
    "deeplabv3_resnet50",
    "fcn_resnet50",
    "lraspp_mobilenet_v3_large",
)
_OF_VIDEOS = {"mc3_18": 64, "mvit_v1_b": 224, "r2plus1d_18": 64, "r3d_18": 64, "s3d": 224, "swin3d_t": 64}
_DETECTORS = (
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "fcos_resnet50_fpn",
    "maskrcnn_resnet50_fpn",
    "retinanet_resnet50_fpn",
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)
_UNTRAINED: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False, "aux_logits": False},
    "inception_v3": {"init_weights": False, "aux_logits": False},
}
_OF_FRAMES = {"mvit_v1_b": 16}


def _built(build: Callable[..., nn.Module], arguments: dict[str, Any]) -> nn.Module:
    return build(**arguments)


def _detector(name: str) -> nn.Module:
    arguments = dict(_NO_BACKBONE)
    if not name.startswith("ssd"):
        arguments["min_size"], arguments["max_size"] = 96, 128
    build: Callable[..., nn.Module] = getattr(m.detection, name)
    return build(**arguments)


ROWS = [
    *(
        Row(
            name,
            partial(_built, getattr(m, name), _NO_WEIGHTS | _UNTRAINED.get(name, {})),
            images(),
            of_side(side),
        )
        for name, side in _CLASSIFIERS.items()
    ),
    *(
        Row(
            f"segmentation.{name}",
            partial(_built, getattr(m.segmentation, name), _NO_BACKBONE),
            images(name="input" if name.startswith("lraspp") else "x"),
            of_side(64),
        )
        for name in _SEGMENTERS
    ),
    *(
        Row(
            f"video.{name}",
            partial(_built, getattr(m.video, name), _NO_WEIGHTS),
            _VIDEO,
            {
                **_OF_VIDEO,
                "height": side,
                "width": side,
                "frames": _OF_FRAMES.get(name, 16 if name == "s3d" else 8),
            },
            {"frames": 2},
        )
        for name, side in _OF_VIDEOS.items()
    ),
    Row(
        "optical_flow.raft_small",
        partial(_built, m.optical_flow.raft_small, _NO_WEIGHTS),
        {
            "image1": Values(("batch", 3, "height", "width")),
            "image2": Values(("batch", 3, "height", "width")),
            "num_flow_updates": 2,
        },
        of_side(128, batch=1),
        {"height": 8, "width": 8},
    ),
    *(
        Row(
            f"detection.{name}",
            partial(_detector, name),
            ([Values((3, "height", "width")), Values((3, "height", "width"))],),
            {"height": 96, "width": 96},
        )
        for name in _DETECTORS
    ),
]
