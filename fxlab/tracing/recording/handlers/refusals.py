"""Calls whose results a graph could not compute again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fxlab.base.exchanged import patched_functions
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.torch_private import eager_transforms

_DERIVATIVES = ("grad_increment_nesting", "jvp_increment_nesting")
"""Functions that all derivatives of ``torch.func`` go through."""


def refuse_backward(run: RecordingState, call: TorchCall) -> Any:
    """Refuse ``backward``, which leaves its results in tensors."""
    if call.name == "backward":
        raise Obstacle.BACKWARD()
    return PASSED_ON


@contextmanager
def derivatives_refused(run: RecordingState) -> Iterator[None]:
    """Refuse the derivatives of ``torch.func``, which hide the function that they differentiate."""

    def nested(original: Any) -> Any:
        if not run.is_seen():
            return original()
        called = "a derivative of torch.func that is not called by its name there (vjp)"
        raise Obstacle.HIDDEN_BY_TORCH(called=called)

    with patched_functions(
        eager_transforms, dict.fromkeys(_DERIVATIVES, lambda original: partial(nested, original))
    ):
        yield
