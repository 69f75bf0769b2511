"""Functions and modules of a model that are running: candidates for opaque calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeAlias, TypeGuard

from torch import nn

from fxlab.tracing.model_code.source_lines import is_model_code, is_start_of_tracing
from fxlab.values.containers import is_a

Part: TypeAlias = type[nn.Module] | FunctionType
"""A class of modules, each of which is one node, or a function or method, each call of which is one."""


@dataclass(frozen=True)
class Reason:
    """Why a graph is specialised."""

    running: tuple[Part, ...]
    """The parts of the model that were running, innermost first."""
    what: str
    """The event in them."""
    where: str
    """``file:line`` of the model's code."""
    is_number: bool = False
    """Whether a plain number was made of a size or of data, as a loop does."""
    is_count: bool = False
    """Whether that is how many numbers were read out of a tensor: of images in a batch, say."""
    is_remainder: bool = False
    """Whether Python decides on the remainder of a size, as on whether a length is to be padded."""
    is_of_torch: bool = False
    """Whether torch has decided on it, and not the model's own code."""
    hides_modules: bool = False
    """Whether a method may stay whole with the modules that it calls, for which passes do not see these."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the model's own classes, so that a graph can be loaded without their source."""
        return {**vars(self), "running": ()}

    @property
    def candidates(self) -> tuple[Part, ...]:
        """The parts of which one may stay whole, the best first.

        A part that pads a length tells the parts around it by how much, and they decide on that too. But the
        computation of a module is not hidden for the sake of a remainder.
        """
        if not self.is_remainder:
            return self.running
        return tuple(takewhile(lambda part: isinstance(part, FunctionType), self.running))[::-1]


def parts_running(frame: FrameType | None) -> tuple[Part, ...]:
    """Return the running parts of a model, from a frame outward to the frame that began to trace it."""
    found: list[Part] = []
    while frame is not None and not is_start_of_tracing(frame.f_code.co_filename):
        if (part := _part_of(frame)) is not None:
            found.append(part)
        frame = frame.f_back
    return tuple(found)


def parts_raising(error: BaseException) -> tuple[Part, ...]:
    """Return the parts of a model that an exception came through, innermost first."""
    return tuple(reversed([part for frame in _frames_of(error) if (part := _part_of(frame)) is not None]))


def _frames_of(error: BaseException) -> Iterator[FrameType]:
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _part_of(frame: FrameType) -> Part | None:
    code = frame.f_code
    if not is_model_code(code.co_filename):
        return None
    if code.co_name == "forward" and code.co_argcount:
        owner = frame.f_locals.get(code.co_varnames[0])
        return type(owner) if is_a(owner, nn.Module) else None
    function = frame.f_globals.get(code.co_name)
    if _runs(function, code):
        return function if function.__module__ == frame.f_globals.get("__name__") else None
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    method = inspect.getattr_static(type(owner), code.co_name, None)
    return method if is_a(owner, nn.Module) and _runs(method, code) else None


def _runs(function: Any, code: CodeType) -> TypeGuard[FunctionType]:
    """Tell whether a value is a function, decorated or not, that has some code; nothing else is asked."""
    inner = function
    while type(inner) is FunctionType:
        if inner.__code__ is code:
            return True
        inner = vars(inner).get("__wrapped__")
    return False


def is_method(function: FunctionType) -> bool:
    """Tell whether a function that is a part of a model is a method of a module."""
    around = function.__qualname__.rpartition(".")[0]
    return bool(around) and not around.endswith("<locals>")
