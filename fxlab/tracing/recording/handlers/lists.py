"""The handler of calls that take or return lists of tensors or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from fxlab.base.exchanged import patched_functions
from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.shapes.uncounted_lists import (
    ListOfUnknownLength,
    is_unread,
    items_of,
    uncounted,
    uncounted_result,
)
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import Path


def hand_on_uncounted(run: RecordingState, call: TorchCall) -> Any:
    """Record a call that takes or returns a list whose length is unknown during tracing."""
    result = _uncounted(run, call)
    return PASSED_ON if result is None else result


def _uncounted(run: RecordingState, call: TorchCall) -> Any:
    def count(size: Any) -> bool:
        if isinstance(size, ListOfUnknownLength):
            size.read()
        elif not run.is_paused:
            with run.sizes.asked(by_model=True):
                as_python_number(int, size)
        return not run.is_paused

    with run.unseen():
        result = uncounted_result(call.name, call.args, call.kwargs, count)
    if result is None:
        return None
    items = items_of(result) if isinstance(result, ListOfUnknownLength) else result
    run.recorded(call.node, items, False)
    if isinstance(result, ListOfUnknownLength):
        result.node = run.recording.latest
    return result


def with_uncounted(run: RecordingState, value: Any, path: Path = (), in_mapping: bool = False) -> Any:
    """Return the latest node's result, with lists in it that notice when Python reads them.

    A list may have an item for each image of a batch, and so may a tuple in the result of a module; a tuple
    by itself is mostly several results.

    ``value``: the node's result, or a part of it. ``path``: the path of that part. ``in_mapping``: whether it
    is an item of a mapping.
    """
    if isinstance(value, Mapping):
        items = {key: with_uncounted(run, item, (*path, key), True) for key, item in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if type(value) is tuple and not in_mapping:
        return tuple(with_uncounted(run, item, (*path, index)) for index, item in enumerate(value))
    if type(value) not in (list, tuple) or not value:
        return value
    result = uncounted(value, None, lambda _: not run.is_paused)
    result.size = result  # there is no tensor of which it is a size
    result.node = run.recording.taken_out(run.recording.latest, path)
    return result


def join_uncounted(run: RecordingState, call: TorchCall) -> Any:
    """Join the items of a list that a part which stays whole gives, however many there are."""
    is_known = call.args and not call.kwargs.keys() - {"dim"}
    if run.whole is None or call.name not in ("cat", "concat", "stack") or not is_known:
        return PASSED_ON
    parts, dim = (*call.args, call.kwargs.get("dim", 0))[:2]
    if not is_unread(parts) or parts.parted is not None:
        return PASSED_ON
    known = frozenset(run.recording.symbols)
    with run.unseen():
        result = run.whole.joined(call.func, items_of(parts), dim, adds_dimension=call.name == "stack")
        if result is None:
            return PASSED_ON
        result = run.recorded(call.node, result, False)
        run.conditions.hold_result(call.name, result, known)
    return result


@contextmanager
def lists_seen(run: RecordingState) -> Iterator[None]:
    """Let ``tolist`` be seen: of a fake tensor torch shows the calls alone that go through its numbers."""

    def call_tolist(tolist: Callable[..., Any], tensor: FakeTensor) -> Any:
        is_seen = run.is_seen() and not run.recording.bodies
        run.reads_shapes |= is_seen
        result = _uncounted(run, TorchCall(torch.Tensor.tolist, (tensor,), {})) if is_seen else None
        return tolist(tensor) if result is None else result

    with patched_functions(FakeTensor, {"tolist": lambda tolist: lambda tensor: call_tolist(tolist, tensor)}):
        yield
