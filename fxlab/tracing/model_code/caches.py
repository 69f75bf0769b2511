"""Empty caches, such as ``functools.lru_cache`` and ``cached_property``, while a model is recorded.

What such a function gave in an earlier run would be a tensor that the graph knows nothing of, and the fake
tensors of the recorded run would turn up in later runs of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from fxlab.interrupts import RestoringStack
from fxlab.tracing.model_code.created_tensors import TensorsMade
from fxlab.tracing.model_code.model_files import file_of, files_of, is_torch, names_in
from fxlab.values.containers import is_a

_Cached = functools._lru_cache_wrapper
_METHODS: tuple[type[Any], ...] = (classmethod, staticmethod, MethodType)


@contextmanager
def caches_bypassed(model: nn.Module, made: TensorsMade | None = None) -> Iterator[None]:
    """Let functions in the Python modules that a model is made of compute each result anew.

    Parameters
    ----------
    model
        The model; functions and methods of the files in which its modules are written are bypassed.
    made
        Is told of the tensors that are constants of the model, though they are made during the run.
    """
    files = files_of(model)
    classes = [value for file in files for value in names_in(file).values() if is_a(value, type)]
    owners: list[Any] = [*files, *(cls for cls in classes if not is_torch(file_of(cls)))]
    with RestoringStack() as stack:
        for owner in {id(owner): owner for owner in owners}.values():
            for name, value in names_in(owner).items():
                if is_a(value, _Cached):
                    stack.callback(_set, owner, name, value)
                    _set(owner, name, _uncached(value))
                elif is_a(value, functools.cached_property):
                    stack.callback(_set, owner, name, value)
                    _set(owner, name, _RememberedForOneRun(value.func, made))
                for cell in _cells_of(value.__func__ if is_a(value, *_METHODS) else value):
                    stack.callback(setattr, cell, "cell_contents", cell.cell_contents)
                    cell.cell_contents = _uncached(cell.cell_contents)
        yield


class _RememberedForOneRun:
    """Stands for a cached property; knows nothing of earlier runs, and nothing of it stays behind."""

    def __init__(self, function: Callable[[Any], Any], made: TensorsMade | None) -> None:
        self._function = function
        self._made = made
        self._known: dict[int, tuple[Any, Any]] = {}

    def __get__(self, owner: Any, cls: type) -> Any:
        if owner is None:
            return self
        if id(owner) not in self._known:
            self._known[id(owner)] = owner, self._value(owner)
        return self._known[id(owner)][1]

    def __set__(self, owner: Any, value: Any) -> None:
        self._known[id(owner)] = owner, value  # what has a setter is asked before the owner's attributes

    def _value(self, owner: Any) -> Any:
        if isinstance(owner, nn.Module):
            return self._function(owner)
        # Of what is no module the model makes a constant, in its first run.
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            value = self._function(owner)
        if self._made is not None:
            self._made.allow(value)
        return value


def _set(owner: Any, name: str, value: Any) -> None:
    if is_a(owner, type):
        type.__setattr__(owner, name, value)
    else:
        object.__getattribute__(owner, "__dict__")[name] = value


def _cells_of(value: Any) -> list[CellType]:
    """Return where a decorated function holds a cached one."""
    if not is_a(value, FunctionType):
        return []
    return [cell for cell in value.__closure__ or () if is_a(_contents(cell), _Cached)]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has not been assigned yet
        return None


def _uncached(function: Any) -> Any:
    """Return the function with the methods of a cached one, but no memory."""
    return functools.lru_cache(maxsize=0)(function.__wrapped__)
