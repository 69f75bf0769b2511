"""The tiny models of ``benchmarks.compile_stages``, and their inputs."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import fxlab
from benchmarks.verdict_models import tiny, tiny_of_type

MODELS = ("bert", "gpt2", "llama", "mixtral", "vit", "resnet", "unet")


def small(name: str) -> tuple[nn.Module, Mapping[str, Any]]:
    """Return a tiny model in evaluation mode, and what it is called with.

    Raises
    ------
    ModuleNotFoundError
        If it is the UNet, and diffusers is not installed.
    """
    torch.manual_seed(0)
    if name == "unet":
        model = unet().eval()
        sample, text = torch.randn(2, 4, 16, 16), torch.randn(2, 6, 32)
        return model, {"sample": sample, "timestep": torch.tensor([7, 7]), "encoder_hidden_states": text}
    model = (tiny_of_type(name) if name == "mixtral" else tiny(name)).eval()
    return model, fxlab.example_inputs(model)


def unet() -> nn.Module:
    """Return a UNet of diffusers with the blocks of Stable Diffusion: down, cross-attention, up."""
    model: nn.Module = importlib.import_module("diffusers").UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
        cross_attention_dim=32,
    )
    return model
