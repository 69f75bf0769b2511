"""The line of the model's code that is running, for ``node.meta`` and for messages."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from types import FrameType, TracebackType

import torch

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


def is_asked_by_own_code() -> bool:
    """Tell whether the question that fxlab answers came from code of the model's own, not from torch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_FXLAB):
        frame = frame.f_back
    return frame is not None and is_model_code(frame.f_code.co_filename)


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
