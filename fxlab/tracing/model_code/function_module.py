"""Functions as modules, so that they are traced like any other model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import nn

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def is_function(value: object) -> bool:
    """Tell whether a value is a function, a method or a partial function, and no class or object."""
    return isinstance(value, _FUNCTIONS)


def module_of(function: Callable[..., Any]) -> nn.Module:
    """Return a module that calls a function, and holds the modules that this reads from outside of it.

    Those are the owner of a method, and modules that variables around a function or global ones stand for.
    They keep these names, which are the paths of their parameters in a graph.

    Examples
    --------
    >>> layer = nn.Linear(2, 2)
    >>> [name for name, _ in module_of(lambda x: layer(x) + 1).named_parameters()]
    ['layer.weight', 'layer.bias']
    """
    inner = _innermost(function)
    name = getattr(inner, "__name__", "")
    names = {"__module__": getattr(inner, "__module__", __name__), "__doc__": inner.__doc__}
    result: nn.Module = type(name if name.isidentifier() else "function", (nn.Module,), names)()
    for variable, module in _modules_read(function):
        if not hasattr(result, variable):
            result.add_module(variable, module)
    vars(result)["forward"] = function if _has_signature(function) else _with_one_input(function)
    modes = {module.training for module in result.children()}
    return result.train(modes.pop()) if len(modes) == 1 else result


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _modules_read(function: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(function, functools.partial):
        named = {f"argument_{place}": value for place, value in enumerate(function.args)} | function.keywords
        yield from ((name, value) for name, value in named.items() if isinstance(value, nn.Module))
    inner = _innermost(function)
    if isinstance(inner, MethodType) and isinstance(inner.__self__, nn.Module):
        yield "module", inner.__self__
    if not isinstance(inner, FunctionType):
        return
    around = inspect.getclosurevars(inner)
    for variable, value in {**around.globals, **around.nonlocals}.items():
        if isinstance(value, nn.Module):
            yield variable, value


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except ValueError:  # functions in C do not tell what they take
        return False
    return True


def _with_one_input(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        return function(*inputs)

    return call
