"""Functions that remember results, as ``functools.lru_cache`` makes them, while a model is recorded.

What such a function gave in an earlier run would be a tensor that the graph knows nothing of, and the fake
tensors of the recorded run would turn up in later runs of the model.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import CellType, FunctionType
from typing import Any
from unittest import mock

from torch import nn

_Cached = functools._lru_cache_wrapper


@contextmanager
def caches_bypassed(model: nn.Module) -> Iterator[None]:
    """Let functions in the Python modules that a model is made of compute each result anew.

    Parameters
    ----------
    model
        The model; functions and methods of the files in which its modules are written are bypassed.
    """
    names = {cls.__module__ for module in model.modules() for cls in type(module).__mro__}
    files = [
        sys.modules[name] for name in names - {"builtins", "torch.nn.modules.module"} if name in sys.modules
    ]
    owners = [*files, *(c for f in files for c in vars(f).values() if isinstance(c, type))]
    with ExitStack() as stack:
        for owner in dict.fromkeys(owners):
            for name, value in list(vars(owner).items()):
                if isinstance(value, _Cached):
                    stack.enter_context(mock.patch.object(owner, name, _uncached(value)))
                for cell in _cells_of(getattr(value, "__func__", value)):
                    stack.enter_context(_bypassed(cell))
        yield


def _cells_of(value: Any) -> list[CellType]:
    """Return where a decorated function holds a cached one."""
    if not isinstance(value, FunctionType):
        return []
    return [cell for cell in value.__closure__ or () if isinstance(_contents(cell), _Cached)]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has not been assigned yet
        return None


def _uncached(function: Any) -> Any:
    """Return the function with the methods of a cached one, but no memory."""
    return functools.lru_cache(maxsize=0)(function.__wrapped__)


@contextmanager
def _bypassed(cell: CellType) -> Iterator[None]:
    cached = cell.cell_contents
    cell.cell_contents = _uncached(cached)
    try:
        yield
    finally:
        cell.cell_contents = cached
