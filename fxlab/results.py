"""Results: a line of text, a table, plain values, and the names by which people look for them."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fxlab.first_use import pd
from fxlab.other_names import OF_RESULTS, no_such_name

if TYPE_CHECKING:
    from fxlab.tables import Table

_SHOWN = 20
"""Rows of a table that a notebook shows of a result."""
_OF_TABLES = {
    *(
        "columns",
        "describe",
        "empty",
        "head",
        "iloc",
        "index",
        "iterrows",
        "itertuples",
        "loc",
        "nlargest",
        "nsmallest",
        "query",
        "round",
        "sort_values",
    ),
    *("tail", "to_csv", "to_excel", "to_html", "to_latex", "to_markdown", "to_parquet", "to_string"),
}
"""Attributes of a result from its table: those that show and write it, none that could pass for an answer."""


class table_property(property):  # noqa: N801  # a decorator
    """A property that is a table, and may be called as well."""

    @overload
    def __get__(self, instance: None, owner: type, /) -> table_property: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> Table: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
        if instance is None:
            return self
        from fxlab.tables import Table

        return Table(super().__get__(instance, owner))


class OtherNames:
    """A value of which attributes are found by the names of other libraries, too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # IPython, copy and pickle ask for these
            raise AttributeError(name)
        for own in OF_RESULTS.get(name, ()):
            if hasattr(type(self), own) or own in vars(self):
                found = getattr(self, own)
                return found if not name.startswith("to_") or callable(found) else lambda found=found: found
        inside = [each for each in vars(self).values() if isinstance(each, Result)]
        inside = [each for each in inside if not hasattr(Result, name) and name in {*dir(each)}]
        if len(inside) == 1:  # a bisection may lack a name that the divergence it found has
            return getattr(inside[0], name)
        if name in _OF_TABLES and hasattr(type(self), "table"):
            return getattr(self.table, name)
        raise no_such_name(f"{type(self).__name__!r} object", name, dir(self))


class Result(OtherNames):
    """The result of a function, which ``str()`` tells in words.

    In a notebook it is shown with its table. Methods that show or write a table work on it as well, and names
    of other libraries are those of fxlab.
    """

    @table_property
    def table(self) -> pd.DataFrame:
        """Its plain values, in one row."""
        found = self.as_dict()
        return pd.DataFrame([{name: v for name, v in found.items() if not isinstance(v, list | dict)}])

    def to_frame(self) -> pd.DataFrame:
        """Return its table."""
        return self.table

    def summary(self) -> str:
        """Return it in words."""
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON or a tracker of experiments."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.repr} | {  # type: ignore[arg-type]
            "text": str(self)
        }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return :meth:`as_dict` as JSON, and write it to a file if a path is given."""
        text = json.dumps(json_values(self.as_dict()), indent=2) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows of its table, whose columns are attributes and items."""
        return iter(self.table.rows)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield the label of each row of its table, and the row."""
        return zip(self.table.index, self, strict=True)

    def __len__(self) -> int:
        return len(self.table)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __contains__(self, key: object) -> bool:
        return key in self.table

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

    def assert_same(self) -> None:
        """Raise an ``AssertionError`` in its words if it is not true."""
        if not self:
            raise AssertionError(str(self))


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
