"""A torch-level call, as the recorder passes it to the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch

from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import Call, as_call, name_of
from fxlab.values.nested import tensors_inside


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

    @cached_property
    def node(self) -> Call:
        """The call in the terms of ``torch.fx``."""
        return as_call(self.func, self.args, self.kwargs)

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among its arguments."""
        return [tensor for _, tensor in tensors_inside((self.args, dict(self.kwargs)))]


Handler: TypeAlias = Callable[[RecordingState, TorchCall], Any]
"""Returns the model's result of a call, or :data:`PASSED_ON`."""
