"""Private hooks of torch by which comparisons tell runs that enter compiled code from others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from fxlab.base.exchanged import patched_functions

_DYNAMO = "torch._dynamo.eval_frame"
_SWITCH = "_maybe_set_eval_frame"
"""Dynamo's function that every compiled callable calls, with its callback, before it runs."""
_OF_TORCH = "torch._higher_order_ops.", "torch.nn.attention."
"""Modules whose eager operators use Dynamo themselves, to check functions that they are given."""
_FRAMES = 4


class CompiledCalls:
    """Tells whether a thread has called compiled code."""

    def __init__(self) -> None:
        self.are_there = False


@contextmanager
def compiled_calls() -> Iterator[CompiledCalls]:
    """Note whether this thread calls functions that ``torch.compile`` has compiled, until the block ends.

    Where Dynamo was not imported nothing is compiled. A torch without the hook notes nothing; compiled
    modules are still known by :func:`is_compiled`.
    """
    calls = CompiledCalls()
    dynamo = sys.modules.get(_DYNAMO)
    if not hasattr(dynamo, _SWITCH):
        yield calls
        return

    def around(switch: Callable[..., Any]) -> Callable[..., Any]:
        def heard(callback: Any) -> Any:
            # Without a callback, Dynamo is off: under `torch.compiler.disable` and `force_eager`.
            if callback is not None and not _is_of_torch():
                calls.are_there = True
            return switch(callback)

        return heard

    with patched_functions(dynamo, {_SWITCH: around}):
        yield calls


def _is_of_torch() -> bool:
    """Tell whether the wrapper that is running is not one of compiled code of the model."""
    frame: Any = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is None:
            break
        function = frame.f_locals.get("fn")
        if callable(function):
            # A function that is left out of compiles gives the callback around it back at its end.
            is_off = getattr(frame.f_locals.get("self"), "callback", True) is None
            return is_off or str(getattr(function, "__module__", "")).startswith(_OF_TORCH)
        frame = frame.f_back
    return False


def may_be_compiled() -> bool:
    """Tell whether anything in this process may be compiled: Dynamo was imported."""
    return _DYNAMO in sys.modules


def is_compiled(model: Any) -> bool:
    """Tell whether calling a model, a part of it, or a function is known to run compiled code.

    Functions that it calls inside may be compiled nevertheless: :func:`compiled_calls` hears of these.
    """
    if not isinstance(model, nn.Module):
        return _is_wrapped(model)
    return any(
        module._compiled_call_impl is not None
        or type(module).__module__ == _DYNAMO
        or _is_wrapped(getattr(module, "forward", None))
        for module in model.modules()
    )


def _is_wrapped(function: Any) -> bool:
    is_off = getattr(function, "_torchdynamo_disable", False)
    return hasattr(function, "_torchdynamo_orig_callable") and not is_off
