"""The calls of torch that a run has made, for another run that makes the same ones to take their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinMethodType, MethodType, MethodWrapperType
from typing import Any, NoReturn

import torch

from fxlab.tracing.recording.graph_builder import OtherRecordingError
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, expression_of
from fxlab.values.nested import tensors_inside

_PLAIN = (
    *(int, float, complex, bool, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(MethodType, BuiltinMethodType, MethodWrapperType),
)
"""The types of values, and of functions that are made again at each look-up."""


class Tape:
    """Remembers the results of calls, in order, as long as no call writes into a tensor.

    Results are the same objects when they are taken from the tape. A call is therefore the same one exactly
    if it receives the same tensors, and nothing has to be computed to tell. ``is_whole``: whether results are
    still as they were given, so that the tape remembers anything.
    """

    is_over = False

    def __init__(self, is_whole: bool) -> None:
        self.is_whole = is_whole
        self._calls: list[tuple[Any, Any, list[set[str]]]] = []

    def record(self, call: tuple[Any, ...], make: Callable[[], Any], whole: bool = False) -> Any:
        """Make a call, and remember its result if there are tensors in it."""
        result = make()
        if self.is_whole and (attributes := _attributes(result)):
            self._calls.append((call, result, attributes))
        return result

    def spoil(self) -> None:
        """Forget everything, as a tensor has changed."""
        self.is_whole = False
        self._calls.clear()

    def rewound(self) -> Replay:
        """Return the tape from its beginning."""
        is_as_it_was = all(_attributes(result) == attributes for _, result, attributes in self._calls)
        return Replay([(call, result) for call, result, _ in self._calls] if is_as_it_was else [])


class Replay:
    """Gives the results of a tape to the same calls, and raises on the first other one.

    ``calls``: the calls and their results. ``is_over``: whether another call was made: the model may have
    caught the error.
    """

    def __init__(self, calls: list[tuple[Any, Any]]) -> None:
        self.is_over = False
        self._ahead = iter(calls)
        self._next = next(self._ahead, None)

    def record(self, call: tuple[Any, ...], make: Callable[[], Any], whole: bool = False) -> Any:
        """Return the remembered result of a call, or make the call if there are no tensors in that.

        The call of a module that is one node is made in any case: its result may have another shape now.
        """
        if self._next is None or not _is_same(call, self._next[0]):
            if _attributes(result := make()):
                self.spoil()
            return result
        _, result = self._next
        if whole and _metadata(make()) != _metadata(result):
            self.spoil()
        self._next = next(self._ahead, None)
        return result

    def spoil(self) -> NoReturn:
        """Raise the error that the call has changed."""
        self.is_over = True
        raise OtherRecordingError("The call is not the one that was made before.")


def _attributes(result: Any) -> list[set[str]]:
    """Return the names of the Python attributes of each tensor inside a result."""
    return [set(vars(tensor)) for _, tensor in tensors_inside(result)]


def _metadata(result: Any) -> list[tuple[Any, ...]]:
    # A size that was asked for once is known to be one: it is a one by its expression, and no plain number.
    return [
        (path, type(t), t.dtype, t.device, t.layout, t.requires_grad, *map(expression_of, t.shape))
        + (tuple(map(expression_of, t.stride())) if t.layout is torch.strided else ())
        for path, t in tensors_inside(result)
    ]


def _is_same(value: Any, other: Any) -> bool:
    """Tell whether two arguments are the same tensors, and equal in all else."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(_is_same, value, other))
    if isinstance(value, Mapping):
        return list(value) == list(other) and all(map(_is_same, value.values(), other.values()))
    if isinstance(value, slice):
        return _is_same((value.start, value.stop, value.step), (other.start, other.stop, other.step))
    if isinstance(value, SymbolicNumber):
        return bool(expression_of(value) == expression_of(other))
    return isinstance(value, _PLAIN) and bool(value == other)
