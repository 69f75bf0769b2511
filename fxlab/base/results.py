"""The base of public results, such as verdicts: a line of text, a table, and plain values."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from fxlab.base.first_use import pd

_SHOWN = 20
"""Rows of a table that a notebook shows of a result."""


class Result:
    """The result of a function; ``str()`` of it is a sentence, and a notebook shows its table as well."""

    @property
    def table(self) -> pd.DataFrame:
        """Its plain values, in one row."""
        found = self.as_dict()
        return pd.DataFrame([{name: v for name, v in found.items() if not isinstance(v, list | dict)}])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON or a tracker of experiments."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.repr} | {  # type: ignore[arg-type]
            "text": str(self)
        }

    def _shown(self) -> pd.DataFrame:
        """Return the rows of the table that a notebook shows."""
        return self.table.head(_SHOWN)

    def __repr__(self) -> str:
        first, *more = str(self).splitlines()[:3] or [""]
        return "\n".join([f"<{type(self).__name__}: {first}{'' if more else '>'}", *more]) + ">" * bool(more)

    def _repr_html_(self) -> str:
        shown = self._shown()
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in str(self).splitlines())
        return lines + (str(shown.to_html()) if len(shown) else "")


class Judged(Result):
    """A result that is true if two models are the same."""

    agrees: Any
    """Whether they are."""

    def __bool__(self) -> bool:
        """Return whether they are, so that ``assert session.verdict()`` fails for another model."""
        return bool(self.agrees)


def json_values(value: Any) -> Any:
    """Return a value as JSON has it: exact numbers, ``None`` for NaN and infinities, text for the rest."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; other values as text."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):  # a status
        return str(value)
    if isinstance(value, Result):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [*map(_plain, value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.repr}
    return str(getattr(value, "name", value))
