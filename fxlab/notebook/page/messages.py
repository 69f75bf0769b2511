"""Messages of the page, checked before anything is done with them, and the methods that answer each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

LONGEST_TEXT = 20_000
"""Characters of one text; a model's own names are shorter than this."""

LONGEST_LIST = 100
"""Items of one list; tensors of torch have at most 64 dimensions."""

LONGEST_OUTLINE = 20_000_000
"""Characters of a graph to be laid out; that it is one is checked before it is."""

_TYPES = {
    "str": (str,), "bool": (bool,), "int": (int,), "int | None": (int, type(None)), "list[int]": (list,),
    "list[str]": (list,),
}  # fmt: skip
"""The types that fields may have, by how they are annotated."""

_Method = TypeVar("_Method", bound=Callable[..., object])


class MessageError(ValueError):
    """A message that the inspector does not understand."""


@dataclass(frozen=True, slots=True)
class Message:
    """One type of message, and its answer.

    ``doing``: the action in words, for the busy line and for errors: ``"Opening the group"``. ``is_slow``:
    whether the busy line says so. ``answer``: a method of the inspector, called with the fields. ``fields``:
    name of a field -> its type as it is annotated. There are no others, and none may be missing.
    """

    doing: str
    is_slow: bool
    answer: Callable[..., object]
    fields: Mapping[str, str]


MESSAGES: dict[str, Message] = {}
"""All messages, by type."""


def answers(type_: str, doing: str, *, is_slow: bool = False) -> Callable[[_Method], _Method]:
    """Register a method for messages of a type; their fields are its annotated parameters."""

    def register(method: _Method) -> _Method:
        _, *parameters = inspect.signature(method).parameters.values()
        fields = {parameter.name: str(parameter.annotation) for parameter in parameters}
        if unknown := fields.values() - _TYPES.keys():
            raise TypeError(f"A message has no field of type {unknown.pop()}; add it to _TYPES.")
        MESSAGES[type_] = Message(doing, is_slow, method, fields)
        return method

    return register


def parse_message(content: object) -> tuple[Message, dict[str, Any], str | None]:
    """Return the type of a message, its fields, and the page's name for the answer if it wants one.

    ``content``: anything that arrived over the wire. Raises MessageError if it is not a mapping with a known
    ``"type"`` and exactly the fields of that type, and perhaps a ``"request"``.
    """
    if not isinstance(content, Mapping):
        raise MessageError(f"A message is an object with a type, got {type(content).__name__}.")
    kind = content.get("type")
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise MessageError(f"Unknown message type {_short(kind)}; expected one of {', '.join(MESSAGES)}.")
    message = MESSAGES[kind]
    for name in content:
        if name not in ("type", "request", *message.fields):
            raise MessageError(f"The message {kind!r} has no field {_short(name)}.")
    for name, hint in message.fields.items():
        longest = LONGEST_OUTLINE if name == "outline" else LONGEST_TEXT
        _check(content.get(name), hint, f"The field {name!r} of the message {kind!r}", longest)
    request = content.get("request")
    if request is not None:
        _check(request, "str", f"The request of the message {kind!r}")
    return message, {name: content[name] for name in message.fields}, request


def request_of(content: object) -> str | None:
    """Return the page's name for the answer to a message, though the message is wrong."""
    request = content.get("request") if isinstance(content, Mapping) else None
    try:
        _check(request, "str", "The request")
    except MessageError:
        return None
    return str(request)


def _check(value: object, hint: str, what: str, longest: int = LONGEST_TEXT) -> None:
    types = _TYPES[hint]
    if type(value) not in types:
        raise MessageError(f"{what} expected {' or '.join(t.__name__ for t in types)}, got {_short(value)}.")
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            raise MessageError(f"{what} is too long.")
        for item in value:
            _check(item, hint.removeprefix("list[").removesuffix("]"), what)
    elif isinstance(value, str):
        if len(value) > longest:
            raise MessageError(f"{what} is too long.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MessageError(f"{what} has an unpaired surrogate.") from None


def _short(value: object) -> str:
    # An integer of thousands of digits has no text.
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge integer"
    text = repr(value) if isinstance(value, str | bool | int | float | None) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
