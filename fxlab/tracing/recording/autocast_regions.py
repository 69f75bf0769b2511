"""Regions of automatic mixed precision inside a model: each call in one says what it computes in.

``torch.export`` writes nodes that switch autocast on and off. Here each node is right by itself instead: it
can be moved, run alone and compared, and a graph that raises half way leaves nothing switched on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.fx.node import has_side_effect

from fxlab.exchanged import exchanged
from fxlab.tracing.report import REFUSAL

_DEVICES = ("cpu", "cuda")

AutocastState: TypeAlias = tuple[tuple[str, torch.dtype], ...]
"""The device types for which autocast is on, with the dtype that it computes in."""


def autocast_state() -> AutocastState:
    """Return what autocast is set to."""
    on = (device for device in _DEVICES if torch._C.is_autocast_enabled(device))
    return tuple((device, torch.get_autocast_dtype(device)) for device in on)


@dataclass(frozen=True)
class UnderAutocast:
    """The target of a node that calls a function with autocast set as the model sets it there."""

    function: Callable[..., Any] | str
    """A function, or the name of a method of ``torch.Tensor``."""
    state: AutocastState

    @property
    def __name__(self) -> str:
        return f"autocast_{self.function if isinstance(self.function, str) else self.function.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        function = getattr(torch.Tensor, self.function) if isinstance(self.function, str) else self.function
        on = dict(self.state)
        with ExitStack() as stack:
            for device in _DEVICES:
                if device in on or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, on.get(device), enabled=device in on))
            return function(*args, **kwargs)


class AutocastUse:
    """Use of autocast by a model: it may compute something else if autocast is set otherwise around it."""

    def __init__(self) -> None:
        self.depends = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See, while a model runs, whether it makes a region like what is around it.

        Most such regions are there to keep precision where autocast is on, and do nothing elsewhere.
        """
        around = autocast_state()

        def entered(enter: Callable[..., Any], region: torch.autocast) -> Any:
            result = enter(region)
            self.depends |= autocast_state() == around
            return result

        with exchanged(torch.autocast, {"__enter__": lambda enter: partial(entered, enter)}):
            yield


@has_side_effect
def require_autocast(state: AutocastState) -> None:
    """Raise ``AssertionError`` unless autocast is set to something."""
    if autocast_state() != state:
        dtypes = ", ".join(f"{device} in {dtype}" for device, dtype in state) or "off"
        raise AssertionError(
            f"{REFUSAL} autocast {dtypes} only, as the model decides on it: trace it as it is to run"
        )
