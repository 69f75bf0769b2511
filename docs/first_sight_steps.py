"""Training steps of small models with random weights, for ``make_first_sight.py``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import transformers as hf
from torch import fx, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxlab

TOKENS = torch.arange(32).reshape(2, 16)
TEXT = {"input_ids": TOKENS, "labels": TOKENS}
LABELS = {"labels": torch.tensor([0, 1])}
PIXELS = torch.linspace(-1, 1, 2 * 3 * 64 * 64).reshape(2, 3, 64, 64)
SMALL = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def llama(layers: int) -> nn.Module:
    """Return a narrow Llama."""
    config = hf.LlamaConfig(num_hidden_layers=layers, num_key_value_heads=2, use_cache=False, **SMALL)
    return hf.LlamaForCausalLM(config)


def with_adamw(model: nn.Module, inputs: Any) -> fx.GraphModule:
    """Return a step that updates the parameters as well."""
    return fxlab.trace_step(model, inputs, optimizer=torch.optim.AdamW(model.parameters()))


class Down(nn.Module):
    """A convolution with a norm, and half the size."""

    def __init__(self, channels: int, new: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, new, 3, padding=1), nn.GroupNorm(4, new)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features of half the size, and those of the whole size."""
        x = functional.silu(self.norm(self.conv(x)))
        return functional.avg_pool2d(x, 2), x


class Up(Down):
    """Twice the size, and a convolution with a norm."""

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Return features of the size of those that were kept."""
        x = torch.cat([functional.interpolate(x, scale_factor=2.0), kept], 1)
        return functional.silu(self.norm(self.conv(x)))


class UNet(nn.Module):
    """Features of three sizes; those of the way down are read on the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(3, 16, 3, padding=1)
        self.down_blocks = nn.ModuleList([Down(16, 32), Down(32, 64), Down(64, 64)])
        self.mid_block = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.SiLU())
        self.up_blocks = nn.ModuleList([Up(128, 64), Up(128, 32), Up(64, 16)])
        self.conv_out = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a picture of the size of the given one."""
        x = self.conv_in(x)
        kept = []
        for block in self.down_blocks:
            x, whole = block(x)
            kept.append(whole)
        x = self.mid_block(x)
        for block in self.up_blocks:
            x = block(x, kept.pop())
        return self.conv_out(x)


def squared(output: torch.Tensor) -> torch.Tensor:
    """Return a loss of a picture."""
    return output.square().mean()


def with_checkpoints() -> fx.GraphModule:
    """Return a step whose layers are computed again in the backward pass."""
    model = llama(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its name changes in transformers 6
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return fxlab.trace_step(model, TEXT)


def sharded_over_ranks() -> fx.GraphModule:
    """Return the step of the first of eight ranks, in a fake group."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    try:
        mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("ranks",))
        model = llama(8)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fxlab.trace_step(fully_shard(model, mesh=mesh), TEXT)
    finally:
        dist.destroy_process_group()


STEPS: dict[str, Callable[[], fx.GraphModule]] = {
    "Step of BERT": lambda: with_adamw(
        hf.BertForSequenceClassification(hf.BertConfig(num_hidden_layers=12, **SMALL)),
        {"input_ids": TOKENS, **LABELS},
    ),
    "Step of a UNet": lambda: fxlab.trace_step(UNet(), PIXELS, loss=squared),
    "Step with checkpoints": with_checkpoints,
    "Step under FSDP, 8 ranks": sharded_over_ranks,
}
"""Steps by name."""
