"""Argument checks for public functions: an error names the argument, the expected and the given value."""

import math
import os
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any


def describe(value: object) -> str:
    """Return a given value in words for an error."""
    if isinstance(value, type):
        return f"the class {value.__name__} (call it)"
    if isinstance(value, int | float | str | None):
        return repr(value)
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def type_error(argument: str, expected: str, value: object, advice: str = "") -> TypeError:
    """Return the error for an argument of another type than is expected."""
    return TypeError(f"{argument}: expected {expected}, got {describe(value)}. {advice}".rstrip())


def names_in(values: Any, argument: str) -> tuple[str, ...]:
    """Return names that are strings, and each there once; TypeError or ValueError for anything else."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise type_error(argument, "a list of names", values, "Write [name].")
    names = tuple(values)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected names as strings, but {describe(name)} is among them.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{argument}: {twice!r} is there more than once. Give each name once.")
    return names


def items_of(values: Any, argument: str, expected: str) -> tuple[Any, ...]:
    """Return the items of a collection, or raise a ``TypeError`` that says what it should hold."""
    if isinstance(values, str | bytes | type) or not isinstance(values, Iterable):
        raise type_error(argument, f"a list of {expected}", values, "Write [...].")
    return tuple(values)


def check_is(kind: type, value: Any, argument: str) -> None:
    """Raise a ``TypeError`` unless a value is of a class."""
    if not isinstance(value, kind):
        raise type_error(argument, f"a {kind.__name__}", value)


def require_bool(value: Any, argument: str) -> bool:
    """Return a truth value, or raise the error for another value: ``"no"`` would count as true."""
    if not isinstance(value, bool):
        raise type_error(argument, "True or False", value)
    return value


def number(value: Any, argument: str, *, at_least: float = -math.inf) -> float:
    """Return a real number, or raise the error for another value or one that is too small."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise type_error(argument, "a number", value)
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"{argument}: expected a number that fits in a float, got a larger one.") from None
    if math.isnan(found) or found < at_least:
        wanted = "a number that is not negative" if at_least == 0 else f"a number of at least {at_least:g}"
        raise ValueError(f"{argument}: expected {wanted}, got {value!r}.")
    return found


def positive_int(value: Any, argument: str) -> int:
    """Return a whole number above zero, or raise the error for another value."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise type_error(argument, "an int", value)
    if value < 1:
        raise ValueError(f"{argument}: expected a positive number, got {value!r}.")
    return value


def file_to_write(path: Any, argument: str, *suffixes: str) -> Path:
    """Return the file of an argument, in a folder that is there, or raise the error for another value."""
    path_text(path, argument)
    file = Path(path)
    if suffixes and file.suffix.lower() not in suffixes:
        expected = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise ValueError(f"{argument}: expected a file that ends in {expected}, got {str(path)!r}.")
    if file.is_dir():
        raise IsADirectoryError(f"{argument}: {file} is a folder; give the name of a file in it.")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{argument}: there is no folder {file.parent}; make it first.")
    return file


def path_text(path: Any, argument: str) -> None:
    """Raise the error that says why something names no file."""
    if not isinstance(path, str | os.PathLike):
        raise type_error(argument, "a path", path)
    if "\0" in str(path) or not str(path).strip():
        raise ValueError(f"{argument}: {str(path)!r} cannot be the name of a file.")
