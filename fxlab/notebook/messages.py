"""What the page may ask for. Everything it sends is checked here before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

LONGEST_TEXT = 20_000
"""Characters of one text; a model's own names are shorter than this."""


class MessageError(ValueError):
    """A message that the inspector does not understand."""


@dataclass(frozen=True, slots=True)
class Toggle:
    """Switch a pass on or off."""

    type: ClassVar[str] = "toggle"
    signature: str
    on: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Show what a pass would do, and switch nothing."""

    type: ClassVar[str] = "preview"
    signature: str


@dataclass(frozen=True, slots=True)
class EndPreview:
    """Show again what was shown before a preview."""

    type: ClassVar[str] = "end-preview"


@dataclass(frozen=True, slots=True)
class Exclude:
    """Take back the rewrite that a node stands for, or leave the node out as a candidate."""

    type: ClassVar[str] = "exclude"
    signature: str
    node: str


@dataclass(frozen=True, slots=True)
class Include:
    """Let a pass take a candidate again that it leaves out."""

    type: ClassVar[str] = "include"
    signature: str
    node: str


@dataclass(frozen=True, slots=True)
class Move:
    """Give a pass another place in the stack; 0 is the lowest."""

    type: ClassVar[str] = "move"
    signature: str
    place: int


@dataclass(frozen=True, slots=True)
class ListOffers:
    """Ask which passes could be added."""

    type: ClassVar[str] = "list-offers"
    request: str


@dataclass(frozen=True, slots=True)
class Add:
    """Offer one more pass, made of arguments as they were typed."""

    type: ClassVar[str] = "add"
    key: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Remove:
    """Offer a pass no longer."""

    type: ClassVar[str] = "remove"
    signature: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Take back the last change."""

    type: ClassVar[str] = "undo"


@dataclass(frozen=True, slots=True)
class Redo:
    """Repeat the change that was taken back."""

    type: ClassVar[str] = "redo"


@dataclass(frozen=True, slots=True)
class Reset:
    """Switch all passes off."""

    type: ClassVar[str] = "reset"


@dataclass(frozen=True, slots=True)
class Refresh:
    """Compute again what the screen shows, tables included."""

    type: ClassVar[str] = "refresh"


@dataclass(frozen=True, slots=True)
class Judge:
    """Tell whether the outputs differ by no more than the model's own rounding."""

    type: ClassVar[str] = "judge"


@dataclass(frozen=True, slots=True)
class Measure:
    """Make a table that takes a while."""

    type: ClassVar[str] = "measure"
    name: str


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Show the inside of a group."""

    type: ClassVar[str] = "open"
    path: str


@dataclass(frozen=True, slots=True)
class CloseGroup:
    """Hide the inside of a group."""

    type: ClassVar[str] = "close"
    path: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Show the groups that a first picture shows."""

    type: ClassVar[str] = "overview"


@dataclass(frozen=True, slots=True)
class SelectNode:
    """Show a node's details, and bring the node itself into sight if ``show`` is set.

    ``before`` is set for a node of the stage beside the one that is shown.
    """

    type: ClassVar[str] = "select-node"
    name: str
    show: bool
    before: bool


@dataclass(frozen=True, slots=True)
class SelectGroup:
    """Show a group's details; ``before`` is set for one of the stage beside the one that is shown."""

    type: ClassVar[str] = "select-group"
    path: str
    before: bool


@dataclass(frozen=True, slots=True)
class ClearSelection:
    """Show the details of the model as a whole."""

    type: ClassVar[str] = "clear-selection"


@dataclass(frozen=True, slots=True)
class RevealPass:
    """Open the groups in which a pass changed nodes."""

    type: ClassVar[str] = "reveal-pass"
    signature: str


@dataclass(frozen=True, slots=True)
class Search:
    """Look for nodes and groups."""

    type: ClassVar[str] = "search"
    query: str
    request: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Light up in the graph what a query finds; nothing if it is empty."""

    type: ClassVar[str] = "filter"
    query: str


@dataclass(frozen=True, slots=True)
class ExportDot:
    """Ask for the view in the DOT language."""

    type: ClassVar[str] = "export-dot"
    request: str


@dataclass(frozen=True, slots=True)
class ExportPdf:
    """Ask for the view as a PDF."""

    type: ClassVar[str] = "export-pdf"
    request: str


@dataclass(frozen=True, slots=True)
class ShowStage:
    """Show a stage of the stack, alone or with what is different from another: one graph, or side by side."""

    type: ClassVar[str] = "show-stage"
    stage: int
    compared: str | int
    beside: bool


@dataclass(frozen=True, slots=True)
class ShowNode:
    """Bring a node into sight: in what is shown if it is there, and at its stage otherwise."""

    type: ClassVar[str] = "show-node"
    name: str
    stage: int


@dataclass(frozen=True, slots=True)
class ShowOverlay:
    """Colour the graph by an overlay; by none if the name is empty."""

    type: ClassVar[str] = "show-overlay"
    name: str


Message = (
    Toggle
    | Preview
    | EndPreview
    | Exclude
    | Include
    | Move
    | ListOffers
    | Add
    | Remove
    | Undo
    | Redo
    | Reset
    | Refresh
    | Judge
    | Measure
    | OpenGroup
    | CloseGroup
    | Overview
    | SelectNode
    | SelectGroup
    | ClearSelection
    | RevealPass
    | Search
    | Filter
    | ExportDot
    | ExportPdf
    | ShowStage
    | ShowNode
    | ShowOverlay
)

_MESSAGES: dict[str, type[Any]] = {cls.type: cls for cls in Message.__args__}
_WORDS = {"str": (str,), "bool": (bool,), "int": (int,), "str | int": (str, int), "dict[str, str]": (dict,)}


def parse_message(content: object) -> Message:
    """Return what a page asks for.

    Parameters
    ----------
    content
        Anything that arrived over the wire.

    Raises
    ------
    MessageError
        If it is not a mapping with a known ``"type"`` and exactly the fields of that type.
    """
    if not isinstance(content, Mapping):
        raise MessageError(f"A message is an object with a type, got {type(content).__name__}.")
    kind = content.get("type")
    if not isinstance(kind, str) or kind not in _MESSAGES:
        raise MessageError(f"Unknown message type {_short(kind)}; expected one of {', '.join(_MESSAGES)}.")
    cls = _MESSAGES[kind]
    expected = {field.name: _WORDS[str(field.type)] for field in fields(cls)}
    unknown = [key for key in content if key != "type" and key not in expected]
    if unknown:
        raise MessageError(f"The message {kind!r} has no field {_short(unknown[0])}.")
    values: dict[str, Any] = {}
    for name, wanted in expected.items():
        value = content.get(name)
        if type(value) not in wanted:
            words = " or ".join(allowed.__name__ for allowed in wanted)
            raise MessageError(
                f"The field {name!r} of the message {kind!r} expected {words}, got {_short(value)}."
            )
        for text in (*value, *value.values()) if isinstance(value, dict) else (value,):
            _check_text(text, f"The field {name!r} of the message {kind!r}", always=wanted == (dict,))
        values[name] = value
    message: Message = cls(**values)
    return message


def _check_text(value: object, what: str, *, always: bool) -> None:
    """Raise if a text cannot be sent back to the page, or if something else stands where texts must."""
    if not isinstance(value, str):
        if always:
            raise MessageError(f"{what} expected texts, got {_short(value)}.")
        return
    if len(value) > LONGEST_TEXT:
        raise MessageError(f"{what} is too long.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise MessageError(f"{what} holds half a character.") from None


def _short(value: object) -> str:
    # An integer of thousands of digits has no text.
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge integer"
    text = repr(value) if isinstance(value, str | bool | int | float | None) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
