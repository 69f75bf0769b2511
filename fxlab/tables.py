"""The class of the tables that fxlab returns; pandas is imported with it."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any, Self

import pandas as pd

from fxlab.other_names import OF_COLUMNS, OF_RESULTS, no_such_name


class Table(pd.DataFrame):
    """A table whose rows are found by name, too: ``table["softmax"]``, ``"softmax" in table``.

    A key is a column, else the label of a row, else the path of a module, which stands for its rows; a number
    is the place of a row. A table may be called, and answers to the names of results. It is true if it has
    rows, unless these are comparisons.
    """

    @property
    def _constructor(self) -> type[Table]:
        return Table

    def __call__(self, *_: Any, **__: Any) -> Self:
        """Return itself."""
        return self

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list) and all(isinstance(each, str) for each in key):
            whole = self.reset_index() if self.index.name in key else self
            return super(Table, whole).__getitem__([_own_column(each, whole.columns) or each for each in key])
        if type(key) is int and key not in self.columns:
            return self._row(key)
        if not isinstance(key, str) or key in self.columns:
            return super().__getitem__(key)
        if (own := _own_column(key, self.columns)) is not None:
            return super().__getitem__(own)
        if key in self.index:
            place = self.index.get_loc(key)
            return self._row(place) if isinstance(place, int) else self.loc[key]
        inside = self._in_module(key)
        if inside is None:
            raise KeyError(self._unknown(key))
        return inside

    def __contains__(self, key: object) -> bool:  # type: ignore[misc]
        return super().__contains__(key) or (isinstance(key, str) and key in self.index)

    def __getattr__(self, name: str) -> Any:  # type: ignore[misc]
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):  # IPython, copy and pickle ask for these
                raise
        if (own := _own_column(name, self.columns)) is not None:
            return self[own]
        if name == "total" and (summed := [one for one in _ADDITIVE if one in self.columns]):
            return self[summed].sum()
        if OF_RESULTS.get(name) == ["to_frame"] or name in ("table", "to_frame"):
            return self
        if name in ("as_dict", "records"):
            return lambda: self.reset_index().to_dict("records")
        if name == "rows":
            return [*map(self._row, range(len(self)))]
        for column in (each for each in _KINDS if each in self.columns):  # table.added
            if name in _KINDS[column] or name in {*self[column]}:
                return self[self[column] == name]
        raise no_such_name("table", name, [*map(str, self.columns), *_SHOWN_METHODS])

    def __repr__(self) -> str:
        with pd.option_context(
            "display.max_columns", None, "display.max_colwidth", 100, "display.width", 160
        ):
            return super().__repr__()

    def __bool__(self) -> bool:  # type: ignore[misc,override]
        if _JUDGED.isdisjoint(self.columns) and not all(map(pd.api.types.is_bool_dtype, self.dtypes)):
            return len(self) > 0
        raise ValueError(
            "A table of comparisons is neither true nor false: len(table) counts its rows, and fxlab.verdict("
            "reference, candidate, inputs) tells whether two models are the same."
        )

    def _row(self, place: int) -> Row:
        label = {} if self.index.name is None else {str(self.index.name): self.index[place]}
        return Row(label | dict(self.iloc[place]))

    def by_module(self) -> Table:
        """Return the sums of the columns that add up, by module."""
        column = _own_column("module", self.columns) or "module"
        summed = [one for one in _ADDITIVE if one in self.columns]
        if column not in self.columns or not summed:
            raise AttributeError(
                f"by_module: the table has no modules with numbers that add up: {[*self.columns]}."
            )
        table: Table = self[[column, *summed]].groupby(column, sort=False).sum()
        return table

    def groupby(self, by: Any = None, *args: Any, **options: Any) -> Any:
        """Group rows as a data frame does, by a column of any of its names."""
        by = _own_column(by, self.columns) or by if isinstance(by, str) and by not in self.columns else by
        return super().groupby(by, *args, **options)

    def _in_module(self, path: str) -> Table | None:
        column = _own_column("module", self.columns) or "module"
        if column not in self.columns:
            return None
        modules = self[column].astype(str)
        inside = (modules == path) | modules.str.startswith(f"{path}.")
        return self[inside] if inside.any() else None

    def _unknown(self, key: str) -> str:
        known = [*map(str, self.columns), *map(str, self.index)]
        near = difflib.get_close_matches(key, known, n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        columns = ", ".join(known[: len(self.columns)])
        return f"{key!r} is no column, row or module of the table.{meant} Columns: {columns}."


class Row(dict[str, Any]):
    """A row of a :class:`Table`: its columns are attributes and items, the label of the row among them."""

    def __missing__(self, name: str) -> Any:
        if (own := _own_column(name, self)) is None:
            raise KeyError(name)
        return self[own]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for these
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise no_such_name("row", name, self) from None


_KINDS = {"change": ("added", "changed", "removed"), "outcome": ("faster", "slower"), "status": ("agrees",)}
"""Columns of kinds, which are attributes as well: the rows of that kind."""
_JUDGED = {"accumulated", "allclose", "max_abs_diff", "status"}
"""Columns of comparisons, of which rows are no answer."""
_ADDITIVE = "time", "share", "flops", "bytes_in", "bytes_out"
"""Columns whose sum over all rows is that of the model. Parameters may be shared."""
_SHOWN_METHODS = ("head", "sort_values", "groupby", "query", "to_csv", "to_dict", "to_markdown")


def _own_column(name: str, columns: Collection[Any]) -> str | None:
    return next((own for own in OF_COLUMNS.get(name, ()) if own in columns), None)
