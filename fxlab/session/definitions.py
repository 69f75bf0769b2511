"""The definitions of passes: classes and functions, which a notebook or an editor may have changed since."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

from fxlab.transformations import Transformation
from fxlab.transformations.signature import arguments_of


def definition_of(pass_: Transformation) -> tuple[object, ...]:
    """Return the parts of a transformation by name: its class, functions and other arguments."""
    cls = type(pass_)
    arguments = {name: _named(value) for name, value in sorted(arguments_of(pass_).items())}
    return f"{cls.__module__}.{cls.__qualname__}", repr(arguments)


def newest(pass_: Transformation) -> Transformation:
    """Return the transformation with the present class and functions of the same names."""
    cls = _newest(type(pass_))
    other = copy.copy(pass_)
    # Passes are frozen dataclasses.
    object.__setattr__(other, "__class__", cls)
    for name, value in arguments_of(pass_).items():
        object.__setattr__(other, name, _newest_in(value))
    for name in [name for name in vars(other) if name not in arguments_of(other)]:
        del vars(other)[name]  # computed from the former definition
    return other


def import_again(passes: Iterable[Transformation], times: dict[str, int]) -> None:
    """Import modules of passes again whose files have changed.

    ``times``: the modification times of their files, which are updated.
    """
    for name in sorted({module for pass_ in passes for module in modules_of(pass_)}):
        time = _changed_at(name)
        if _is_outdated(name, times):
            importlib.reload(sys.modules[name])
        if time is not None:
            times[name] = time


def is_outdated(pass_: Transformation, times: dict[str, int]) -> bool:
    """Tell whether a file of a pass has changed since its time was noted."""
    return any(_is_outdated(name, times) for name in modules_of(pass_))


def _is_outdated(name: str, times: dict[str, int]) -> bool:
    time = _changed_at(name)
    return time is not None and times.get(name, time) != time


def note_times(pass_: Transformation, times: dict[str, int]) -> None:
    """Note the modification times of the files of a pass."""
    for name in modules_of(pass_):
        time = _changed_at(name)
        if time is not None:
            times.setdefault(name, time)


def modules_of(pass_: Transformation) -> set[str]:
    """Return the modules of a pass's class and functions, except fxlab's, by name."""
    found = [type(pass_), *functions_in(list(arguments_of(pass_).values()))]
    names = {str(each.__module__) for each in found}
    return {
        name for name in names if name.partition(".")[0] not in ("fxlab", "torch", "builtins", "__main__")
    }


def _changed_at(name: str) -> int | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    try:
        return None if file is None else os.stat(file).st_mtime_ns
    except OSError:  # it was removed, or is in an archive
        return None


def functions_in(value: object) -> list[types.FunctionType]:
    """Return the functions in an argument of a pass."""
    if isinstance(value, dict):
        return functions_in(list(value.values()))
    if isinstance(value, list | tuple):
        return [function for each in value for function in functions_in(each)]
    return [value] if isinstance(value, types.FunctionType) else []


def _named(value: object) -> object:
    """Return an argument with names for functions."""
    if isinstance(value, dict):
        return {name: _named(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value) if not dataclasses.is_dataclass(value) else value


def _newest_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _newest_in(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_newest_in, value))
    return _newest(value) if isinstance(value, types.FunctionType) else value


def _newest(definition: Any) -> Any:
    """Return the present class or function of the same name, or the given one."""
    found: Any = sys.modules.get(str(definition.__module__))
    for part in str(definition.__qualname__).split("."):
        found = getattr(found, part, None)
    return found if type(found) is type(definition) or isinstance(found, type) else definition
