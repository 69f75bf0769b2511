"""Calls that give or take lists of tensors or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.recording.handlers.replaced import replaced
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import Run
from fxlab.tracing.recording.torch_calls import as_call, name_of
from fxlab.tracing.shapes.uncounted_lists import Uncounted, items_of, uncounted_result


def go_through_rows(run: Run, call: TorchCall) -> Any:
    """Take a tensor that Python goes through apart by ``unbind``."""
    if call.func is not torch.Tensor.__iter__:
        return PASSED_ON
    with run.mode:
        return iter(call.args[0].unbind(0))


def hand_on_uncounted(run: Run, call: TorchCall) -> Any:
    """Record a call that gives or takes a list whose items nothing has counted."""
    result = _uncounted(run, call.func, call.args, call.kwargs)
    return PASSED_ON if result is None else result


def _uncounted(run: Run, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    def count(size: Any) -> bool:
        if not run.is_paused:
            with run.sizes.asked(by_model=True):
                as_python_number(int, size)
        return not run.is_paused

    with run.unseen():
        result = uncounted_result(name_of(func), args, kwargs, count)
    if result is None:
        return None
    items = items_of(result) if isinstance(result, Uncounted) else result
    run.recorded(as_call(func, args, kwargs), items, False)
    if isinstance(result, Uncounted):
        result.node = run.recording.latest
    return result


@contextmanager
def lists_seen(run: Run) -> Iterator[None]:
    """Let ``tolist`` be seen: of a fake tensor torch shows the calls alone that go through its numbers."""
    tolist = FakeTensor.tolist

    def call_tolist(tensor: FakeTensor) -> Any:
        is_seen = run.is_seen() and not run.recording.bodies
        run.reads_shapes |= is_seen
        result = _uncounted(run, torch.Tensor.tolist, (tensor,), {}) if is_seen else None
        return tolist(tensor) if result is None else result

    with replaced(FakeTensor, "tolist", call_tolist):
        yield
