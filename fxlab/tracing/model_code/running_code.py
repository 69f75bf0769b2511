"""The running code of a recorded model: its line, for nodes and messages, its functions and its modules."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
from dataclasses import dataclass
from itertools import takewhile
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import nn

from fxlab.values.containers import is_a

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_MODULES = os.path.join(_TORCH, "nn", "modules", "")
_FAKES = os.path.join(_TORCH, "_subclasses", "")
_OPERATORS = os.path.join(_TORCH, "_higher_order_ops", "")
_TRACING = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FXLAB = os.path.dirname(os.path.dirname(_TRACING)) + os.sep
_NOT_OF_A_MODEL = (_TORCH, _FXLAB, "<frozen", "<string>")


@functools.lru_cache(maxsize=4096)
def is_model_code(filename: str) -> bool:
    """Tell whether a file is neither torch's nor fxlab's own."""
    return not filename.startswith(_NOT_OF_A_MODEL) and f"{os.sep}contextlib.py" not in filename


def is_of_modules(filename: str) -> bool:
    """Tell whether a file is one of torch's own modules, which a model may be, or derive from."""
    return filename.startswith(_MODULES)


def file_that_asks() -> str | None:
    """Return the name of the model's own file whose code asks fxlab; ``None`` if torch's does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_FXLAB):
        frame = frame.f_back
    own = frame if frame is not None and is_model_code(frame.f_code.co_filename) else None
    return None if own is None else str(own.f_globals.get("__name__"))


def is_asked_by_own_code() -> bool:
    """Tell whether the question that fxlab answers came from code of the model's own, not from torch's."""
    return file_that_asks() is not None


def is_asked_by_torch(frame: FrameType) -> bool:
    """Tell whether torch asks something of a tensor: its fake tensors, or checks of its operators.

    Fake tensors ask by a method, or by one that calls it. Operators call functions of the model.
    """
    if frame.f_code.co_name == "layout" and frame.f_code.co_filename.startswith(_FAKES) and frame.f_back:
        frame = frame.f_back  # since torch 2.15 a property of fake tensors, which asks for its reader
    file, around = frame.f_code.co_filename, frame.f_back or frame
    return file.startswith((_FAKES, _OPERATORS)) or around.f_code.co_filename.startswith(_FAKES)


def is_start_of_tracing(filename: str) -> bool:
    """Tell whether a file is the one that runs a model to trace it."""
    return filename == f"{_TRACING}symbolic_trace.py"


def model_frames(until: FrameType) -> list[tuple[str, int, str]]:
    """Return file, line and function of each running frame of the model, outermost first.

    ``until``: the frame that called the model; it and the frames outside it are left out.
    """
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not until:
        code = frame.f_code
        if is_model_code(code.co_filename):
            found.append((code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back
    return found[::-1]


@functools.lru_cache(maxsize=4096)  # equal layers share their strings
def stack_trace(frames: tuple[tuple[str, int, str], ...]) -> str:
    """Write frames as Python writes a traceback, which is how torch keeps ``node.meta["stack_trace"]``."""
    return "".join(
        f'  File "{filename}", line {line}, in {function}\n    {linecache.getline(filename, line).strip()}\n'
        for filename, line, function in frames
    )


def where(frames: list[tuple[str, int, str]]) -> str:
    """Return ``file:line`` of the innermost frame."""
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""


def where_asked() -> str:
    """Return ``file:line`` of the innermost line of the model, or of torch if the model is torch's own."""
    frame: FrameType | None = sys._getframe(1)
    of_torch = ""
    while frame is not None and not is_start_of_tracing(filename := frame.f_code.co_filename):
        place = f"{filename}:{frame.f_lineno}"
        if is_model_code(filename):
            return place
        if is_of_modules(filename):
            of_torch = of_torch or place
        frame = frame.f_back
    return of_torch


def where_raised(error: BaseException) -> str:
    """Return the innermost line of a model's code that an exception came through, with its text."""
    found = ""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_model_code(filename):
            line = linecache.getline(filename, traceback.tb_lineno).strip()
            found = f"{filename}:{traceback.tb_lineno}: {line}"
        traceback = traceback.tb_next
    return found


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
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return tuple(reversed([part for frame in frames if (part := _part_of(frame)) is not None]))


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
