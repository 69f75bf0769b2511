"""Calls of the functions and modules that stay one node each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from torch import nn

from fxlab.tracing.findings import Found
from fxlab.tracing.model_code.running_calls import Part, is_method
from fxlab.tracing.recording.opaque.bound_methods import method_of
from fxlab.tracing.recording.opaque.opaque_calls import CannotBeWholeError
from fxlab.tracing.recording.run import Run
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.report import TraceError


@contextmanager
def functions_seen(run: Run) -> Iterator[None]:
    """Let calls of functions that stay whole be seen."""
    copied_settings: dict[int, Any] = {}

    def call(
        function: FunctionType, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not run.is_seen() or run.recording.bodies:
            return original(*args, **kwargs)
        if not is_method(function):
            return call_part(run, function, original, Call("call_function", function, args, kwargs))
        module, *others = args
        target = method_of(module, function.__name__, copied_settings)
        with run.mode_reads.standing_for(module):
            return call_part(run, function, target, Call("call_function", target, tuple(others), kwargs))

    if run.whole is None:
        yield
        return
    with run.whole.calls_seen(call):
        yield


def call_part(
    run: Run, part: Part, function: Callable[..., Any], call: Call, module: nn.Module | None = None
) -> Any:
    """Record a call of a part that stays whole, and make the graph check what it gives.

    Parameters
    ----------
    run
        The run.
    part
        The part, as the run knows it.
    function
        Does what it does.
    call
        The node to be.
    module
        The module that it is, if it is one.
    """
    assert run.whole is not None
    try:
        run.recording.argument((call.args, dict(call.kwargs)))
    except TraceError as error:
        raise CannotBeWholeError(part, str(error)) from error
    known = frozenset(run.recording.symbols)
    with run.unseen():
        result, written = run.whole.run(part, function, call.args, call.kwargs, module)
        result = run.recorded(call, result, written, module is not None and vars(module)["training"])
        run.conditions.hold_result(part.__name__, result, known)
    reason = run.whole.reasons[part]
    what = part.__name__ if module is None else f"{run.recording.scopes[-1][0]} ({part.__name__})"
    run.recording.findings.append(Found.KEPT_WHOLE(what, reason.where, reason=reason.what))
    return result
