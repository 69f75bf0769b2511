"""Regions in which a model turns gradients on by itself: to compute forces from an energy, for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.exchanged import Make, patched_functions
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import Call

_is_on = torch.is_grad_enabled  # another stands under this name while a model is recorded


@contextmanager
def gradients_turned_on_seen(run: RecordingState) -> Iterator[None]:
    """Turn gradients on in the graph where the model does, and restore the mode after that.

    A graph is recorded with gradients on, and may run without them. Regions without gradients need no such
    nodes, since their results are detached.
    """
    inside: list[tuple[Any, Node | None]] = []

    def entered(enter: Callable[..., Any], region: Any) -> None:
        enter(region)
        if run.is_seen() and getattr(region, "mode", True):
            before = None if inside else _recorded(run, _is_on)
            inside.append((region, before))
            if before is not None:
                _recorded(run, torch.set_grad_enabled, True)

    def left(leave: Callable[..., Any], region: Any, *error: Any) -> None:
        leave(region, *error)
        if inside and inside[-1][0] is region:
            _, before = inside.pop()
            if before is not None:
                _recorded(run, torch.set_grad_enabled, before)

    makes: dict[str, Make] = {
        "__enter__": lambda enter: partial(entered, enter),
        "__exit__": lambda leave: partial(left, leave),
    }
    with patched_functions(torch.enable_grad, makes), patched_functions(torch.set_grad_enabled, makes):
        yield


def _recorded(run: RecordingState, function: Callable[..., Any], *args: Any) -> Node:
    run.conditions.hold_decisions()
    with run.unseen():
        run.recording.add(Call("call_function", function, args, {}), None, False, impure=True)
    return run.recording.latest
