"""The answer that each command returns, as text for people or JSON for programs; exit codes, errors."""

from __future__ import annotations

import enum
import json
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TextIO

from fxlab.base.results import json_values
from fxlab.base.units import with_unit

if TYPE_CHECKING:
    import pandas as pd


class ExitCode(enum.IntEnum):
    """The exit status of ``fxlab``."""

    DONE = 0
    """Done; if models were compared, they are the same up to rounding."""
    DIFFERENT = 1
    """The model with the passes is a different function, or rounds worse."""
    FAULTY = 1
    """`fxlab doctor`: something that fxlab needs is not there or does not work."""
    BAD_USAGE = 2
    """An argument is wrong, or a file or model that it names is missing or cannot be taken."""
    NOT_TRACED = 3
    """The model could not be traced."""
    PASS_FAILED = 4
    """A pass raised."""
    NOT_COMPARED = 5
    """The models could not be run or compared on these inputs, or no output has an element to compare."""
    SCRIPT_FAILED = 6
    """`fxlab compile`: the script raised, or ended with another status than 0."""
    UNEXPECTED = 70
    """Something that fxlab did not foresee."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandError(Exception):
    """The error that ends a command, in words for the person who gave it."""

    def __init__(self, message: str, code: ExitCode = ExitCode.BAD_USAGE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def ends_with(code: ExitCode, *kinds: type[Exception], hint: str = "") -> Iterator[None]:
    """End the command with a code if one of these exceptions is raised, with its own words and a hint."""
    try:
        yield
    except CommandError:
        raise
    except kinds as error:
        words = str(error).strip() or type(error).__name__
        raise CommandError(f"{words} {hint}".strip(), code) from error


WIDEST_CELL = 100


@dataclass(frozen=True)
class Answer:
    """Facts and tables."""

    facts: dict[str, Any]
    """Name -> string, number, ``None`` or a list of these."""
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Name -> table, whose index, if it has a name, is its first column."""

    def write(self, file: TextIO, *, as_json: bool, top: int | None = None) -> None:
        """Write it as text or JSON, with at most ``top`` rows of each table."""
        if top is not None:
            shown = {name: table.head(top) for name, table in self.tables.items()}
            replace(self, tables=shown).write(file, as_json=as_json)
        elif as_json:
            tables = {name: _flat(table).to_dict("records") for name, table in self.tables.items()}
            file.write(json.dumps(json_values({**self.facts, **tables}), indent=2) + "\n")
        else:
            file.write(visible(self._text()))

    def _text(self) -> str:
        known = {name: value for name, value in self.facts.items() if value not in (None, [])}
        width = max((len(name) for name in known), default=0)
        facts = [f"{_words(name):{width}}  {_value(value)}\n" for name, value in known.items()]
        tables = [f"{_words(name)}\n{_table_text(table)}\n" for name, table in self.tables.items()]
        return "\n".join(part for part in ("".join(facts), *tables) if part)


def visible(text: str) -> str:
    """Escape control characters: text that comes from a model must not command a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Of terminals, and those that turn the direction of text round; not line ends and tabs."""


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings in words, except for those of libraries about their own future."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("default")
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield


def _show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    print(visible(f"warning: {message}"), file=sys.stderr)


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    return table if table.index.name is None else table.reset_index()


def _table_text(table: pd.DataFrame) -> str:
    if table.empty:
        return "  none"
    flat = _flat(table).apply(lambda column: column.map(_value))
    widths = [max(len(str(name)), *map(len, flat[name])) for name in flat]
    rows = [list(map(str, flat.columns)), *flat.to_numpy().tolist()]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return with_unit(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    text = " ".join(str(value).split())
    return text if len(text) <= WIDEST_CELL else f"{text[: WIDEST_CELL - 1]}…"
