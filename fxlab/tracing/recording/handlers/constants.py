"""The handler of calls that make tensors of Python's numbers and of numpy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from fxlab.base.exchanged import patched_functions
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.torch_private import unset_fake_temporarily

_OF_NUMPY = (torch.tensor, torch.as_tensor, torch.asarray)


def allow_numbers(run: RecordingState, call: TorchCall) -> Any:
    """Record a tensor that torch makes of Python numbers as a constant, and make the call."""
    if call.func is torch.ops.aten.lift_fresh.default:
        run.made.allow(call.args)
    return PASSED_ON


def copy_array(run: RecordingState, call: TorchCall) -> Any:
    """Make a tensor of an array of numpy, which no recorded call can have given."""
    if call.func not in _OF_NUMPY or not isinstance(call.args[0], np.ndarray):
        return PASSED_ON
    with run.unseen(), unset_fake_temporarily():
        constant = run.recording.constant_node(call.func(*call.args, **call.kwargs).clone())
    result = call.func(*call.args, **call.kwargs)
    return run.recorded(Call("call_method", "clone", (constant,), {}), result, False)


@contextmanager
def arrays_seen(run: RecordingState) -> Iterator[None]:
    """Let ``torch.from_numpy`` be seen, which torch hides from modes."""

    def from_array(from_numpy: Callable[..., Any], ndarray: Any) -> Any:
        return torch.as_tensor(ndarray) if isinstance(ndarray, np.ndarray) else from_numpy(ndarray)

    with patched_functions(torch, {"from_numpy": lambda from_numpy: partial(from_array, from_numpy)}):
        yield


@contextmanager
def constructors_seen(run: RecordingState) -> Iterator[None]:
    """Record tensors that classes make, as in ``torch.LongTensor([0, 2])``: only operators show them."""

    def hear(func: Any, args: tuple[Any, ...], result: Any) -> Any:
        if func is torch.ops.aten.lift_fresh.default and run.is_seen():
            with run.unseen(), unset_fake_temporarily():
                constant = run.recording.constant_node(args[0].clone())
            return run.recorded(Call("call_method", "clone", (constant,), {}), result, False)
        if func is torch.ops.aten.empty.memory_format and run.is_seen():
            options = {"dtype": result.dtype, "device": result.device}
            return run.recorded(Call("call_function", torch.empty, args[:1], options), result, False)
        return result

    run.fakes.mode.hear = hear
    try:
        yield
    finally:
        run.fakes.mode.hear = None
