"""Empties caches, such as ``functools.lru_cache`` and ``cached_property``, while a model is recorded.

The result of such a function from an earlier run would be a tensor that the graph does not know, and the fake
tensors of the recorded run would turn up in later runs of the model.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, GeneratorType
from typing import Any

import torch
from torch import nn

from fxlab.base.interrupts import RestoringStack
from fxlab.tracing.model_code.model_files import file_of, files_of, names_in
from fxlab.tracing.model_code.running_code import where_asked
from fxlab.tracing.model_code.snapshot import Cached, put_name
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.unseen_work import TensorsMade
from fxlab.tracing.report import Obstacle
from fxlab.tracing.torch_private import disable_current_modes
from fxlab.values.containers import is_a, replace_item

_OF_RUNS: tuple[type[Any], ...] = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, nn.Module)
"""Classes of arguments for which a result may be a tensor of the run, or which no cache can look up."""


@contextmanager
def caches_bypassed(
    model: nn.Module, around: Surroundings, made: TensorsMade | None = None
) -> Iterator[None]:
    """Bypass the caches of functions around a model, for this thread.

    Functions from the files of its modules always do so. Others do if they receive tensors, modules or sizes;
    otherwise they may be slow and called again and again. ``around``: the Python around the model. ``made``:
    is told of tensors that are constants of the model although they are made during the run.
    """
    own = files_of(model)
    names = {file.__name__ for file in own}
    with RestoringStack() as stack:
        for holder, key, function in around.caches:
            stack.callback(_put, holder, key, function)
            if is_a(function, Cached):
                _put(holder, key, _uncached(function, always=function.__module__ in names))
            else:
                _put(holder, key, Unused(function))
        for owner in (owner for owner in around.owners if is_a(owner, type) and file_of(owner) in names):
            for key, value in names_in(owner).items():
                if is_a(value, functools.cached_property):
                    stack.callback(put_name, owner, key, value)
                    put_name(owner, key, _RememberedForOneRun(value, made))
        yield


class Unused:
    """Stands for a generator, iterator or file of the model, which a run would use up for good."""

    def __init__(self, own: Any) -> None:
        self._own, self._thread = own, threading.get_ident()

    def _used(self) -> Any:
        if threading.get_ident() == self._thread:
            called = f"an iterator or file ({type(self._own).__qualname__})"
            if is_a(self._own, GeneratorType):
                called = f"a generator ({self._own.__qualname__})"
            raise Obstacle.GENERATOR(called=called, where=where_asked())
        return self._own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._used(), name)

    def __iter__(self) -> Any:
        return self._used()

    def __next__(self) -> Any:
        return next(self._used())


class _RememberedForOneRun:
    """Stands for a cached property; it ignores earlier runs, and leaves nothing behind."""

    def __init__(self, own: functools.cached_property[Any], made: TensorsMade | None) -> None:
        self._own = own
        self._made = made
        self._known: dict[int, tuple[Any, Any]] = {}
        self._thread = threading.get_ident()

    def __get__(self, owner: Any, cls: type) -> Any:
        if owner is None:
            return self
        if threading.get_ident() != self._thread:
            return self._own.__get__(owner, cls)
        if id(owner) not in self._known:
            self._known[id(owner)] = owner, self._value(owner)
        return self._known[id(owner)][1]

    def __set__(self, owner: Any, value: Any) -> None:
        if threading.get_ident() == self._thread:
            self._known[id(owner)] = owner, value  # a setter takes precedence over attributes
        else:
            vars(owner)[self._own.attrname] = value

    def _value(self, owner: Any) -> Any:
        if isinstance(owner, nn.Module):
            return self._own.func(owner)
        # A result that belongs to no module is computed once by the model, so it is a constant.
        with disable_current_modes(), torch._C.DisableTorchFunction():
            value = self._own.func(owner)
        if self._made is not None:
            self._made.allow(value)
        return value


def _put(holder: Any, key: Any, function: Any) -> None:
    if is_a(holder, CellType):
        holder.cell_contents = function
    elif is_a(holder, dict, list, deque):
        replace_item(holder, key, function)
    else:
        put_name(holder, key, function)


def _uncached(function: Any, *, always: bool) -> Callable[..., Any]:
    """Return the function with the methods of a cached one, but without its memory in this thread."""
    here = threading.get_ident()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_here = threading.get_ident() == here
        if is_here and (always or any(is_a(value, *_OF_RUNS) for value in (*args, *kwargs.values()))):
            return function.__wrapped__(*args, **kwargs)
        return function(*args, **kwargs)

    methods = ("cache_info", "cache_clear", "cache_parameters")
    vars(call).update({name: getattr(function, name) for name in methods})
    return call
