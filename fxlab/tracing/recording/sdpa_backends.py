"""Regions of a model that choose how attention is computed: each call in one says what it computes with.

Backends round differently, so the choice belongs to the node and not to the caller of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

AttentionBackends: TypeAlias = tuple[SDPBackend, ...]
"""What ``scaled_dot_product_attention`` may compute with; other backends round otherwise."""

_ENABLED: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}
"""How to ask for each; the settings hold for CPUs, too."""


def attention_backends() -> AttentionBackends:
    """Return what attention may be computed with."""
    return tuple(backend for backend, is_enabled in _ENABLED.items() if is_enabled())


@dataclass(frozen=True)
class WithAttentionBackends:
    """The target of a node that computes attention with what the model chooses there."""

    function: Callable[..., Any]
    backends: AttentionBackends

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        with sdpa_kernel(list(self.backends)):
            return self.function(*args, **kwargs)
