"""MONAI's networks for volumes and images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import monai.networks.nets as n
from torch import nn

from benchmarks.coverage.libraries.rows import Row, Values

_VOLUME = Values(("batch", 1, "height", "width", "depth"))
_IMAGE = Values(("batch", 1, "height", "width"))
_OF_VOLUME = {"batch": 2, "height": 32, "width": 32, "depth": 32}
_OF_IMAGE = {"batch": 2, "height": 64, "width": 64}
_NETS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "UNet": (3, lambda: n.UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)),
    "BasicUNet": (3, lambda: n.BasicUNet(3, 1, 2, features=(4, 4, 8, 8, 16, 4))),
    "BasicUNetPlusPlus": (2, lambda: n.BasicUNetPlusPlus(2, 1, 2, features=(4, 4, 8, 8, 16, 4))),
    "AttentionUnet": (2, lambda: n.AttentionUnet(2, 1, 2, channels=(4, 8, 16), strides=(2, 2))),
    "DynUNet": (
        2,
        lambda: n.DynUNet(
            2, 1, 2, kernel_size=(3, 3, 3), strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(4, 8, 16)
        ),
    ),
    "SegResNet": (3, lambda: n.SegResNet(3, init_filters=8, in_channels=1, out_channels=2)),
    "SegResNetVAE": (
        3,
        lambda: n.SegResNetVAE((32, 32, 32), spatial_dims=3, init_filters=8, in_channels=1, out_channels=2),
    ),
    "VNet": (3, lambda: n.VNet(3, 1, 2)),
    "UNETR": (
        3,
        lambda: n.UNETR(1, 2, (32, 32, 32), feature_size=4, hidden_size=32, mlp_dim=48, num_heads=2),
    ),
    "SwinUNETR": (
        2,
        lambda: n.SwinUNETR(
            1, 2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2)
        ),
    ),
    "ViT": (
        2,
        lambda: n.ViT(
            1,
            (64, 64),
            (16, 16),
            hidden_size=32,
            mlp_dim=48,
            num_layers=2,
            num_heads=2,
            spatial_dims=2,
            classification=True,
        ),
    ),
    "ViTAutoEnc": (
        2,
        lambda: n.ViTAutoEnc(
            1, (64, 64), (16, 16), hidden_size=32, mlp_dim=48, num_layers=2, num_heads=2, spatial_dims=2
        ),
    ),
    "AutoEncoder": (2, lambda: n.AutoEncoder(2, 1, 1, channels=(4, 8), strides=(2, 2))),
    "VarAutoEncoder": (2, lambda: n.VarAutoEncoder(2, (1, 64, 64), 1, 8, channels=(4, 8), strides=(2, 2))),
    "AutoencoderKL": (
        2,
        lambda: n.AutoencoderKL(
            2,
            1,
            1,
            num_res_blocks=(1, 1),
            channels=(8, 16),
            attention_levels=(False, True),
            latent_channels=3,
            norm_num_groups=4,
        ),
    ),
    "VQVAE": (
        2,
        lambda: n.VQVAE(
            2,
            1,
            1,
            channels=(8, 8),
            num_res_layers=1,
            num_res_channels=(8, 8),
            downsample_parameters=((2, 4, 1, 1),) * 2,
            upsample_parameters=((2, 4, 1, 1, 0),) * 2,
            num_embeddings=16,
            embedding_dim=8,
        ),
    ),
    "DenseNet121": (2, lambda: n.DenseNet121(2, 1, 3)),
    "EfficientNetBN": (
        2,
        lambda: n.EfficientNetBN(
            "efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=1, num_classes=3
        ),
    ),
    "ResNet": (3, lambda: n.resnet18(spatial_dims=3, n_input_channels=1, num_classes=3)),
    "SEResNet50": (2, lambda: n.SEResNet50(spatial_dims=2, in_channels=1, num_classes=3)),
    "HighResNet": (3, lambda: n.HighResNet(3, 1, 2)),
    "FlexibleUNet": (2, lambda: n.FlexibleUNet(1, 2, "efficientnet-b0", spatial_dims=2)),
    "AHNet": (2, lambda: n.AHNet(spatial_dims=2, in_channels=1, out_channels=2, psp_block_num=0)),
    "PatchDiscriminator": (
        2,
        lambda: n.PatchDiscriminator(spatial_dims=2, num_layers_d=2, channels=8, in_channels=1),
    ),
    "MedNeXt": (2, lambda: n.MedNeXt(2, 4, 1, 2)),
    "RegUNet": (2, lambda: n.RegUNet(2, 1, 4, depth=2)),
}


def _row(name: str, dims: int, build: Callable[[], nn.Module]) -> Row:
    spec: dict[str, Any] = {"x": _VOLUME} if dims == 3 else {"x": _IMAGE}
    return Row(name, build, tuple(spec.values()), _OF_VOLUME if dims == 3 else _OF_IMAGE)


ROWS = [
    *(_row(name, dims, build) for name, (dims, build) in _NETS.items()),
    Row(
        "DiffusionModelUNet",
        lambda: n.DiffusionModelUNet(
            2,
            1,
            1,
            num_res_blocks=(1, 1),
            channels=(8, 16),
            attention_levels=(False, True),
            norm_num_groups=4,
            num_head_channels=8,
        ),
        {"x": _IMAGE, "timesteps": Values(("batch",), below=1000)},
        {"batch": 2, "height": 16, "width": 16},
        {"height": 2, "width": 2},
    ),
    Row(
        "FullyConnectedNet",
        lambda: n.FullyConnectedNet(8, 3, hidden_channels=(8, 16)),
        (Values(("batch", 8)),),
        {"batch": 2},
    ),
    Row(
        "MILModel",
        lambda: n.MILModel(3, mil_mode="att", pretrained=False),
        (Values(("batch", "patches", 3, 32, 32)),),
        {"batch": 2, "patches": 2},
    ),
]
