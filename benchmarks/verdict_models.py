"""Forty tiny models of many kinds, with inputs, for ``benchmarks.verdicts``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

import fxlab

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from zoo import TEN, tiny, tiny_of_type

_OF_TYPES = (
    *("albert", "electra", "mpnet", "deberta-v2", "opt", "gpt_neox", "bloom", "phi", "gemma2", "qwen3"),
    *("mixtral", "qwen3_moe", "convnext", "mobilenet_v2", "regnet", "dinov2", "bart"),
)


class Residual(nn.Module):
    """A residual block around any layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the layers compute."""
        return F.relu(x + self.layers(x))


class Gated(nn.Module):
    """A gated perceptron with a norm before it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the gated branch."""
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Attention(nn.Module):
    """Attention with a causal mask, written out."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to what comes before."""
        batch, length, width = x.shape
        y = self.norm(x)
        q, k, v = (
            layer(y).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) * self.scale
        ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(ahead, torch.finfo(x.dtype).min).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Experts(nn.Module):
    """Each token goes to the expert with the best score."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.inner = nn.Parameter(torch.randn(experts, width, 32) / 4)
        self.outer = nn.Parameter(torch.randn(experts, 32, width) / 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sort tokens by expert and multiply in groups."""
        tokens = x.reshape(-1, x.shape[-1])
        weight, expert = self.router(tokens).softmax(-1).max(-1)
        order = expert.argsort()
        counts = F.one_hot(expert, self.inner.shape[0]).sum(0)
        ends = counts.cumsum(0).to(torch.int32)
        hidden = F.silu(torch._grouped_mm(tokens[order], self.inner, offs=ends))
        found = torch._grouped_mm(hidden, self.outer, offs=ends)[order.argsort()]
        return x + (found * weight[:, None]).reshape(x.shape)


class Excitation(nn.Module):
    """Channels weighted by their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weight channels."""
        return x * self.outer(F.gelu(self.inner(x.mean((2, 3), keepdim=True)))).sigmoid()


def _conv(dim: int, channels: int = 8, **options: Any) -> nn.Module:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dim - 1]
    return conv(channels, channels, 3, padding=1, **options)


def _norm(dim: int, channels: int = 8) -> nn.Module:
    return (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dim - 1](channels)


def _folds(dim: int, layers: int, activation: type[nn.Module] = nn.ReLU, **options: Any) -> nn.Module:
    parts = [(_conv(dim, **options), _norm(dim), activation()) for _ in range(layers)]
    return nn.Sequential(*(part for three in parts for part in three))


def _residual() -> nn.Module:
    blocks = (Residual(_conv(2, bias=False), _norm(2), nn.ReLU(), _conv(2), _norm(2)) for _ in range(4))
    return nn.Sequential(_conv(2), _norm(2), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def _inverted() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(8, 24, 1, bias=False), _norm(2, 24), nn.Hardswish()),
        *(nn.Conv2d(24, 24, 3, groups=24, bias=False), _norm(2, 24), nn.Hardswish(), Excitation(24)),
        *(nn.Conv2d(24, 8, 1, bias=False), _norm(2)),
    )


def _perceptron(activation: type[nn.Module], norm: type[nn.Module] | None = None) -> nn.Module:
    parts = [
        (nn.Linear(16, 16), *((norm(16),) if norm else ()), activation(), nn.Dropout(0.1)) for _ in range(3)
    ]
    return nn.Sequential(*(part for several in parts for part in several), nn.Linear(16, 7))


_IMAGE, _LINE, _TOKENS, _ROWS = (2, 8, 10, 10), (3, 8, 20), (3, 9, 16), (12, 16)
_WRITTEN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv-bn-1d": (partial(_folds, 1, 3, nn.GELU), _LINE),
    "conv-bn-2d": (partial(_folds, 2, 3), _IMAGE),
    "conv-bn-3d": (partial(_folds, 3, 2), (2, 8, 5, 5, 5)),
    "conv-bn-grouped": (partial(_folds, 2, 4, nn.SiLU, groups=4, bias=False), _IMAGE),
    "conv-residual": (_residual, _IMAGE),
    "conv-inverted": (_inverted, _IMAGE),
    "mlp-relu": (partial(_perceptron, nn.ReLU), _ROWS),
    "mlp-batch-norm": (partial(_perceptron, nn.GELU, nn.BatchNorm1d), _ROWS),
    "mlp-layer-norm": (partial(_perceptron, nn.Tanh, nn.LayerNorm), _ROWS),
    "gated": (lambda: nn.Sequential(*(Gated() for _ in range(3))), _TOKENS),
    "attention": (lambda: nn.Sequential(*(Attention() for _ in range(2)), nn.LayerNorm(16)), _TOKENS),
    "attention-gated": (lambda: nn.Sequential(Attention(), Gated(), Attention(), Gated()), _TOKENS),
    "experts": (lambda: nn.Sequential(Attention(), Experts(), nn.LayerNorm(16), Experts()), _TOKENS),
}
NAMES = (*_WRITTEN, *TEN, *_OF_TYPES)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def model_and_inputs(name: str, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    """Return a model in evaluation mode and inputs, the same each time."""
    torch.manual_seed(0)
    if name in _WRITTEN:
        build, shape = _WRITTEN[name]
        model, inputs = build(), (torch.randn(shape).to(dtype),)
        _trained(model)
        return model.eval().to(dtype), inputs
    model = tiny(name) if name in TEN else tiny_of_type(name)
    _trained(model)
    model = model.eval().to(dtype)
    return model, fxlab.example_inputs(model)


def _trained(model: nn.Module) -> None:
    """Give norms the statistics and weights of trained ones."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, NORMS):
                module.running_mean.normal_(0, 0.5)
                module.running_var.uniform_(0.5, 2)
            if isinstance(module, (*NORMS, nn.LayerNorm, nn.RMSNorm)) and module.weight is not None:
                module.weight.uniform_(0.5, 1.5)
                if getattr(module, "bias", None) is not None:
                    module.bias.normal_(0, 0.3)
