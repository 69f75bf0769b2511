"""Values of dataclasses as JSON keeps them, read back with every field checked: a file may be anybody's."""

from __future__ import annotations

import dataclasses
import enum
import types
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_LARGE = 2**1023
"""No float can hold twice as much."""


def read_as(kind: type[T], data: object) -> T:
    """Return a dataclass of what ``dataclasses.asdict`` made of one, and JSON of that.

    Every field has to be there, no other may be, and each has to be of the type that is annotated: an ``int``
    stands for a ``float``, a list for a tuple, and nothing else for something else. Raises ValueError if it
    is none of one; the field is named.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Size:
    ...     width: int
    ...     unit: str | None
    >>> read_as(Size, {"width": 3, "unit": None})
    Size(width=3, unit=None)
    >>> read_as(Size, {"width": True, "unit": None})
    Traceback (most recent call last):
    ValueError: width: expected int, got bool
    """
    value: T = _read(kind, data, "")
    return value


@cache
def _types_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read(kind: Any, data: Any, place: str) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and types.NoneType in of:
            return None
        (kind,) = (one for one in of if one is not types.NoneType)
        return _read(kind, data, place)
    if origin is tuple and isinstance(data, list):
        return tuple(_read(of[0], item, f"{place}[{number}]") for number, item in enumerate(data))
    if origin is dict and isinstance(data, dict):
        inside = {_text(name, place): f"{place}[{name!a:.40}]" for name in data}
        return {name: _read(of[1], data[name], where) for name, where in inside.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(data, dict):
        wanted = _types_of(kind)
        if data.keys() != wanted.keys():
            raise ValueError(f"{place or kind.__name__}: expected the fields {', '.join(wanted)}")
        read = {name: _read(one, data[name], f"{place}.{name}".lstrip(".")) for name, one in wanted.items()}
        return kind(**read)
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and isinstance(data, str):
        return kind(data)
    if kind is str and isinstance(data, str):
        return _text(data, place)
    if type(data) is kind or (kind is float and type(data) is int and abs(data) < _LARGE):
        return data
    raise ValueError(f"{place}: expected {getattr(kind, '__name__', kind)}, got {type(data).__name__}")


def _text(data: str, place: str) -> str:
    """Return a text that can be written to a file or a terminal, which half of a surrogate pair cannot."""
    try:
        data.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}: {data!a:.80} is no text") from error
    return data
