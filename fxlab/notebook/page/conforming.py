"""Values from anywhere, such as saved views, checked against the types of the protocol."""

from __future__ import annotations

import re
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

LONGEST_TEXT = 20_000
LONGEST_LIST = 100_000
_SURROGATE = re.compile("[\ud800-\udfff]")
"""No text that can be encoded has one."""


def required(value: object, kind: Any, name: str) -> None:
    """Require that a value is of a typed dictionary; ValueError names the first field that is wrong."""
    hints = get_type_hints(kind)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise ValueError(f"{name[:1].upper()}{name[1:]} is an object with {', '.join(hints)}.")
    for field, hint in hints.items():
        if not conforms(value[field], hint):
            raise ValueError(f"There is {name} with a wrong {field}.")


def conforms(value: object, hint: Any) -> bool:
    """Tell whether a value is of a type; numbers are not negative, and texts can be encoded."""
    parts = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(conforms(value, part) for part in parts)
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in parts
    if get_origin(hint) is list:
        return (
            isinstance(value, list)
            and len(value) <= LONGEST_LIST
            and all(conforms(v, parts[0]) for v in value)
        )
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        return (
            isinstance(value, dict)
            and value.keys() == hints.keys()
            and all(conforms(value[name], part) for name, part in hints.items())
        )
    if hint is str:
        return isinstance(value, str) and len(value) <= LONGEST_TEXT and not _SURROGATE.search(value)
    if hint in (int, float):
        numbers = (int, float) if hint is float else int
        return isinstance(value, numbers) and not isinstance(value, bool) and 0 <= value < 2**31
    return isinstance(value, hint)
