"""A text that tells a metric from others: by its code, and by what it holds."""

import functools
import hashlib
import inspect
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from fxlab.validation.evaluation.batch_inputs import add_to

_DATA = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset, torch.Tensor)


def metric_print(metric: Any) -> str:
    """Return a hash of what a metric computes: its code, its attributes, and the variables that it reads.

    Functions of modules that it calls count by their names alone.

    Examples
    --------
    >>> def above(limit):
    ...     return lambda outputs, batch: (outputs > limit).float().mean()
    >>> metric_print(above(1)) == metric_print(above(1)), metric_print(above(1)) == metric_print(above(2))
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, metric, set())
    return digest.hexdigest()


def _add(digest: Any, value: Any, inside: set[int]) -> None:
    """Add a value, and all that it holds, to a hash."""
    if id(value) in inside:
        return
    digest.update(f"|{type(value).__module__}.{type(value).__qualname__}:".encode())
    if isinstance(value, str | bytes | int | float | complex | None | torch.dtype | torch.device):
        digest.update(repr(value).encode())
    elif isinstance(value, torch.Tensor):
        add_to(digest, value.detach())
    elif hasattr(value, "tobytes"):  # an array of NumPy
        digest.update(value.tobytes())
    elif isinstance(value, type | BuiltinFunctionType):
        digest.update(f"{value.__module__}.{value.__qualname__}".encode())
    else:
        for part in _parts(value):
            _add(digest, part, inside | {id(value)})


def _parts(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        try:
            closed = inspect.getclosurevars(value)
        except ValueError:  # a variable that is not set yet
            return [value.__qualname__, value.__code__]
        read = {**closed.nonlocals, **{n: v for n, v in closed.globals.items() if isinstance(v, _DATA)}}
        return [value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, read]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, list(value.co_consts)]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, nn.Module):
        return [value.training, dict(value.state_dict()), *_attributes(value)]
    return _attributes(value)


def _attributes(value: Any) -> list[Any]:
    held = getattr(value, "__dict__", {})
    call = vars(type(value)).get("__call__")
    code = [call.__code__] if isinstance(call, FunctionType) else []
    return [*code, held] if isinstance(held, dict) else code
