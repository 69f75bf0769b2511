"""The definitions of passes: classes and functions, which a notebook may have changed since."""

from __future__ import annotations

import dataclasses
import types

from fxlab.transformations import Transformation
from fxlab.transformations.signature import arguments_of


def definition_of(pass_: Transformation) -> tuple[object, ...]:
    """Return the parts of a transformation by name: its class, functions and other arguments."""
    cls = type(pass_)
    arguments = {name: _named(value) for name, value in sorted(arguments_of(pass_).items())}
    return f"{cls.__module__}.{cls.__qualname__}", repr(arguments)


def _named(value: object) -> object:
    """Return an argument with names for functions."""
    if isinstance(value, dict):
        return {name: _named(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value) if not dataclasses.is_dataclass(value) else value
