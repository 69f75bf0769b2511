"""Python builtins that would turn symbolic sizes into plain numbers while a model is recorded.

In the files of a model ``len`` and ``range`` follow symbolic sizes. Questions about sizes that are asked in
this file are taken to be the model's.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fxlab.exchanged import exchanged, instead
from fxlab.interrupts import RestoringStack
from fxlab.tracing.model_code.model_files import files_of, names_in
from fxlab.tracing.torch_private import FakeTensor

_ATTENTION = functional.scaled_dot_product_attention


@contextmanager
def sizes_in_builtins(model: nn.Module) -> Iterator[None]:
    """Put ``len`` and ``range`` that know symbolic sizes into the files that a model is written in."""
    own = {"len": instead(_len), "range": instead(_range)}
    files = {file: own.keys() - names_in(file).keys() for file in files_of(model)}
    seeing = (exchanged(file, {name: own[name] for name in names}) for file, names in files.items())
    with RestoringStack(exchanged(functional, {_ATTENTION.__name__: instead(_attention)}), *seeing):
        yield


def as_python_number(kind: Callable[[Any], Any], number: Any) -> Any:
    """Return what Python's ``bool``, ``int`` or ``float`` makes of a number, which may be symbolic."""
    return kind(number)


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Decide whether it ``is_causal``, which models make of a size and torch wants to be a plain flag."""
    for name, value in kwargs.items():
        if isinstance(value, torch.SymBool):
            kwargs[name] = as_python_number(bool, value)
    return _ATTENTION(*args, **kwargs)


def _len(value: Any) -> Any:
    if isinstance(value, FakeTensor) and value.dim():
        return value.shape[0]
    return builtins.len(value)


def _range(*args: Any) -> Sequence[Any]:
    """Return the numbers of a range: how many there are is fixed, which they are is not."""
    if not any(isinstance(arg, torch.SymInt) for arg in args):
        return builtins.range(*args)
    start, stop, step = (0, args[0], 1) if builtins.len(args) == 1 else (*args, 1)[:3]
    if isinstance(step, torch.SymInt) or step <= 0:
        return builtins.range(*args)
    count = int((stop - start + step - 1) // step) if stop > start else 0
    return [start + index * step for index in builtins.range(count)]
