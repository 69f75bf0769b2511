"""Calls of autograd's functions and of ``torch.vmap``, which torch hides from modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointFunction

from fxlab.exchanged import exchanged
from fxlab.tracing.findings import Found
from fxlab.tracing.recording.run import Run
from fxlab.tracing.recording.torch_calls import AutogradFunction, Call, CheckpointOutput
from fxlab.tracing.recording.vmap import VmapBody
from fxlab.tracing.report import TraceError
from fxlab.tracing.torch_private import apis


@contextmanager
def autograd_functions_seen(run: Run) -> Iterator[None]:
    """Let calls of ``torch.autograd.Function.apply`` be seen."""

    def seen(original: Any) -> Callable[..., Any]:
        def call(function: type[Function], *args: Any, **kwargs: Any) -> Any:
            apply = original.__get__(None, function)
            return _apply(run, function, apply, args, kwargs) if run.is_seen() else apply(*args, **kwargs)

        return call

    with exchanged(Function, {"apply": seen}):
        yield


def _apply(
    run: Run, function: type[Function], apply: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
) -> Any:
    if function is CheckpointFunction and torch.is_grad_enabled():
        return _checkpointed(run, args[0], args[2:])
    try:
        run.recording.argument((args, kwargs))
    except TraceError:
        run.recording.note(Found.OWN_BACKWARD, function.__name__)
        return apply(*args, **kwargs)
    call = Call("call_function", AutogradFunction(function), args, kwargs)
    return run.recorded_whole(call, lambda: apply(*args, **kwargs), False)


def _checkpointed(run: Run, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Record what a reentrant checkpoint runs without gradient, and again in its backward with it."""
    result = function(*inputs)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]

    def cut(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        call = Call("call_function", CheckpointOutput(), (value, *given), {})
        return run.recorded_whole(call, lambda: call.target(*call.args), False, is_of_torch=True)

    return tuple(map(cut, result)) if isinstance(result, tuple) else cut(result)


@contextmanager
def vmap_seen(run: Run) -> Iterator[None]:
    """Let calls of ``torch.vmap`` be seen, and what it maps be recorded as a graph of its own."""

    def call(
        original: Callable[..., Any],
        function: Callable[..., Any],
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunk: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not run.is_seen():
            return original(function, in_dims, out_dims, randomness, chunk, *args, **kwargs)
        body = VmapBody(function, in_dims, args)
        run.recording.bodies.append(body)
        try:
            recorded = body.run(run.recording.nodes.__setitem__, run.recording.node_of_output)
            with run.unseen():  # what torch does around the function
                result = original(run.seen(recorded), in_dims, out_dims, randomness, None, *args, **kwargs)
        finally:
            run.recording.bodies.pop()
        node = Call("call_function", body.target(out_dims, randomness), tuple(body.given), {})
        return run.recorded(node, result, False)

    with exchanged(apis, {"vmap_impl": lambda original: partial(call, original)}):
        yield
