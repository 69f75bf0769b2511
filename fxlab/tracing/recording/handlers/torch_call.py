"""A torch-level call on its way through the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import name_of


class PassedOn:
    """The result of a handler that leaves a call to the next one."""


PASSED_ON = PassedOn()


@dataclass(frozen=True)
class TorchCall:
    """A call that torch shows to the recorder."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_told: bool = True
    """Whether the model receives the result, and not torch's fake tensors."""

    @cached_property
    def name(self) -> str:
        """The name that the call goes by."""
        return name_of(self.func)


Handler: TypeAlias = Callable[[RecordingState, TorchCall], Any]
"""Returns the model's result of a call, or :data:`PASSED_ON`."""
