"""Regions of a recorded model in which it chooses autocast, or how attention is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.fx.node import has_side_effect
from torch.nn.attention import SDPBackend, sdpa_kernel

from fxlab.base.exchanged import patched_functions
from fxlab.models.running.autocast import AutocastState, autocast_state
from fxlab.values.nested import REFUSAL


class AutocastUse:
    """Use of autocast by a model: it may compute something else if autocast is set otherwise around it."""

    def __init__(self) -> None:
        self.depends = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See, while a model runs, whether it enters a region with the settings that hold around it.

        Most such regions are there to keep precision where autocast is on, and do nothing elsewhere.
        """
        around = autocast_state()

        def entered(enter: Callable[..., Any], region: torch.autocast) -> Any:
            result = enter(region)
            self.depends |= autocast_state() == around
            return result

        with patched_functions(torch.autocast, {"__enter__": lambda enter: partial(entered, enter)}):
            yield


@has_side_effect
def require_autocast(state: AutocastState) -> None:
    """Raise ``AssertionError`` unless autocast is set to something."""
    if autocast_state() != state:
        dtypes = ", ".join(f"{device} in {dtype}" for device, dtype in state) or "off"
        raise AssertionError(
            f"{REFUSAL} autocast {dtypes} only, as the model decides on it: trace it as it is to run"
        )


AttentionBackends: TypeAlias = tuple[SDPBackend, ...]
"""The backends of ``scaled_dot_product_attention``; others round otherwise."""

_ENABLED: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}
"""How to ask for each; the settings hold for CPUs, too."""


def attention_backends() -> AttentionBackends:
    """Return the backends that attention may be computed with."""
    return tuple(backend for backend, is_enabled in _ENABLED.items() if is_enabled())


@dataclass(frozen=True)
class WithAttentionBackends:
    """The target of a node that computes attention with the backends that the model chooses there."""

    function: Callable[..., Any]
    backends: AttentionBackends

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        with sdpa_kernel(list(self.backends)):
            return self.function(*args, **kwargs)
