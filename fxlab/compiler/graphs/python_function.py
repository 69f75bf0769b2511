"""The Python function behind a callable, and the object it is called on: Dynamo compiles by these."""

import types
from collections.abc import Callable
from typing import Any

from fxlab.base.checks import type_error


def plain_function(function: Callable[..., Any]) -> types.FunctionType:
    """Return the Python function that an object calls; ``TypeError`` if it is not written in Python."""
    known: Any = getattr(function, "__func__", function)
    if not isinstance(known, types.FunctionType):
        known = vars(type(known)).get("__call__")
    if not isinstance(known, types.FunctionType):
        raise type_error("model", "a module or a function of Python", function)
    return known


def owner_of(function: Callable[..., Any]) -> Any:
    """Return the object whose method a callable is, or that is called; ``None`` for a function."""
    return getattr(function, "__self__", None if plain_function(function) is function else function)
