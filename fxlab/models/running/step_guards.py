"""Checks that a traced step's data are as when it was recorded: recording puts them in, loops hear them."""

from __future__ import annotations

from typing import Any

import torch


class GuardError(AssertionError):
    """A step was called with data for which it does not hold."""


def require_number(value: Any, expected: Any) -> None:
    """Raise :class:`GuardError` unless a number that a step reads has the recorded value."""
    if value != expected:
        raise GuardError(
            f"The step was recorded for data of which Python has read {expected!r}; now it reads {value!r}, "
            "and may decide otherwise. Trace it with these data: fxlab.trace_step(model, inputs, ...)."
        )


def require_shape(value: torch.Tensor, expected: tuple[int, ...]) -> None:
    """Raise :class:`GuardError` unless a tensor has its recorded size."""
    if tuple(value.shape) != expected:
        raise GuardError(
            f"The step was recorded for data of which {expected} elements were chosen; now "
            f"{tuple(value.shape)} are. Trace it with these data: fxlab.trace_step(model, inputs, ...)."
        )


GUARDS = (require_number, require_shape)
