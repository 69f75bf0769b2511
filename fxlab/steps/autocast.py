"""The autocast regions around a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

_DEVICES = ("cpu", "cuda", "xpu", "mps")


@dataclass(frozen=True)
class AutocastNow:
    """The device types for which autocast is on, each with its dtype."""

    regions: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def now(cls) -> AutocastNow:
        """Return those around this call."""
        on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        return cls(tuple((device, torch.get_autocast_dtype(device)) for device in on))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in these regions, and no others, within the block."""
        with autocast_off(), ExitStack() as stack:
            for device, dtype in self.regions:
                stack.enter_context(torch.autocast(device, dtype))
            yield


@contextmanager
def autocast_off() -> Iterator[None]:
    """Leave the autocast regions around a call, as a training loop does before the backward pass."""
    with ExitStack() as stack:
        for device, _ in AutocastNow.now().regions:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
