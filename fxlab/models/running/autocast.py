"""Automatic mixed precision, for traces and compiled graphs: regions around a call, calls in a region.

``torch.export`` writes nodes that switch autocast on and off. Here each node is right by itself: it can be
moved, run alone and compared, and a graph that raises half-way leaves nothing switched on.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

_DEVICES = ("cpu", "cuda", "xpu", "mps")
_is_on, _dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
"""Kept under other names, since torch's are exchanged while a model is recorded, to find their readers."""

AutocastState: TypeAlias = tuple[tuple[str, torch.dtype], ...]
"""The device types for which autocast is on, with the dtype that it computes in."""


def autocast_state() -> AutocastState:
    """Return the settings of autocast."""
    return tuple((device, _dtype_of(device)) for device in _DEVICES if _is_on(device))


@contextmanager
def autocast_set(state: AutocastState = ()) -> Iterator[None]:
    """Set autocast to a state, and nothing else, until the block ends."""
    on = dict(state)
    with ExitStack() as stack:
        for device in _DEVICES:
            if device in on or _is_on(device):
                stack.enter_context(torch.autocast(device, on.get(device), enabled=device in on))
        yield


@dataclass(frozen=True)
class UnderAutocast:
    """The target of a node that calls a function with the model's autocast at that place."""

    function: Callable[..., Any] | str
    """A function, or the name of a method of ``torch.Tensor``."""
    state: AutocastState

    @property
    def __name__(self) -> str:
        return f"autocast_{self.function if isinstance(self.function, str) else self.function.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        function = getattr(torch.Tensor, self.function) if isinstance(self.function, str) else self.function
        with autocast_set(self.state):
            return function(*args, **kwargs)
