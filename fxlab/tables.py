"""The class of the tables that fxlab returns; pandas is imported with it."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn, Self

import pandas as pd

from fxlab.other_names import OF_COLUMNS, OF_RESULTS, no_such_name


class Table(pd.DataFrame):
    """A table whose rows are found by name, too: ``table["softmax"]``, ``"softmax" in table``.

    A key is a column, else the label of a row, else the path of a module, which stands for its rows. A table
    may be called, and answers to the names of results.
    """

    @property
    def _constructor(self) -> type[Table]:
        return Table

    @property
    def _constructor_sliced(self) -> type[Column]:
        return Column

    def __call__(self) -> Self:
        """Return itself."""
        return self

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list) and all(isinstance(each, str) for each in key):
            whole = self.reset_index() if self.index.name in key else self
            return super(Table, whole).__getitem__([_own_column(each, whole) or each for each in key])
        if not isinstance(key, str) or key in self.columns:
            return super().__getitem__(key)
        if (own := _own_column(key, self)) is not None:
            return super().__getitem__(own)
        if key in self.index:
            found = self.loc[key]
            return Row(found) if isinstance(found, Column) else found
        inside = self._in_module(key)
        if inside is None:
            raise KeyError(self._unknown(key))
        return inside

    def __contains__(self, key: object) -> bool:  # type: ignore[misc]
        return super().__contains__(key) or (isinstance(key, str) and key in self.index)

    def __getattr__(self, name: str) -> Any:  # type: ignore[misc]
        try:
            found = super().__getattr__(name)
            return self._with_number(found, name)
        except AttributeError:
            if name.startswith("_"):  # IPython, copy and pickle ask for these
                raise
        if (own := _own_column(name, self)) is not None:
            return self._with_number(self[own], own)
        if name == "total" and (summed := [one for one in _ADDITIVE if one in self.columns]):
            return self[summed].sum()
        if OF_RESULTS.get(name) == ["to_frame"] or name in ("table", "to_frame"):
            return self
        if name in ("as_dict", "records"):
            return lambda: self.reset_index().to_dict("records")
        for column in (each for each in _KINDS if each in self.columns):  # table.added, table.faster
            if name in _KINDS[column] or name in {*self[column]}:
                rows = self[self[column] == name]
                return bool(len(rows)) if column == "outcome" and len(self) == 2 else rows
        raise no_such_name("table", name, [*map(str, self.columns), *_SHOWN_METHODS])

    def __repr__(self) -> str:
        with pd.option_context(
            "display.max_columns", None, "display.max_colwidth", 100, "display.width", 160
        ):
            return super().__repr__()

    def __bool__(self) -> NoReturn:  # type: ignore[misc]
        raise ValueError(
            "A table is neither true nor false: len(table) counts its rows, and fxlab.verdict(reference, "
            "candidate, inputs) tells whether two models are the same."
        )

    def by_module(self) -> Table:
        """Return the sums of what adds up, by module."""
        column = _own_column("module", self) or "module"
        summed = [one for one in _ADDITIVE if one in self.columns]
        if column not in self.columns or not summed:
            raise AttributeError(
                f"by_module: the table has no modules with numbers that add up: {[*self.columns]}."
            )
        table: Table = self[[column, *summed]].groupby(column, sort=False).sum()
        return table

    def groupby(self, by: Any = None, *args: Any, **options: Any) -> Any:
        """Group rows as a data frame does, by a column of any of its names."""
        by = _own_column(by, self) or by if isinstance(by, str) and by not in self.columns else by
        return super().groupby(by, *args, **options)

    def _with_number(self, found: Any, name: str) -> Any:
        """Give a column the number that an attribute of this name means, if there is one."""
        if isinstance(found, Column) and len(self):
            if self.index.name == "passes" and len(self) == 2:
                found._number = found.iloc[1]
            elif self.index.name == "node" and name in _ADDITIVE:
                found._number = found.sum()
            elif self.index.name == "node" and name in _LARGEST:
                found._number = found.max()
        return found

    def _in_module(self, path: str) -> Table | None:
        column = _own_column("module", self) or "module"
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
    """A row of a :class:`Table`: its columns are attributes and items."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for these
            raise AttributeError(name)
        own = next((each for each in (name, *OF_COLUMNS.get(name, ())) if each in self), None)
        if own is None:
            raise no_such_name("row", name, self)
        return self[own]


class Column(pd.Series):
    """A column or row of a :class:`Table`.

    As an attribute it counts as one number where it means one: ``benchmark(a, b).speedup > 1`` is asked of
    the candidate, ``profile(model, x).flops < 1e9`` of the sum. Rows are still picked by it.
    """

    _number: Any = None

    @property
    def _constructor(self) -> type[Column]:
        return Column

    @property
    def _constructor_expanddim(self) -> type[Table]:
        return Table

    def _one_number(self) -> Any:
        if self._number is None:
            name = self.name if isinstance(self.name, str) else "column"
            raise ValueError(
                f"{name}: there is a value for each of {len(self)} rows. Write .sum(), .max(), .all() or "
                f".any(), or take a row: table.loc[{self.index[0] if len(self) else 'label'!r}]."
            )
        return self._number

    def __float__(self) -> float:  # type: ignore[override]
        return float(self._one_number())

    def __int__(self) -> int:  # type: ignore[override]
        return int(self._one_number())

    def __format__(self, spec: str) -> str:
        return format(self._one_number(), spec) if spec else str(self)

    def __bool__(self) -> bool:  # type: ignore[misc,override]
        return bool(self._one_number())


def _of_numbers(name: str) -> Any:
    by_rows = getattr(pd.Series, name)

    def computed(self: Column, other: Any) -> Any:
        number = getattr(other, "_number", None)
        if number is not None and self._number is not None and not self.index.equals(other.index):
            return getattr(self._number, name)(number)  # of two models
        found = by_rows(self, other)
        if self._number is not None and isinstance(found, Column):
            found._number = getattr(self._number, name)(other if number is None else number)
        return found

    return computed


for _name in ("lt", "le", "eq", "ne", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv"):
    setattr(Column, f"__{_name}__", _of_numbers(f"__{_name}__"))
Column.__hash__ = pd.Series.__hash__


_KINDS = {"change": ("added", "changed", "removed"), "outcome": ("faster", "slower"), "status": ("agrees",)}
"""Columns of kinds, which are attributes as well: the rows of that kind."""
_LARGEST = "live", "peak_memory"
"""Columns whose largest value is that of the model."""
_ADDITIVE = "time", "share", "flops", "bytes_in", "bytes_out"
"""Columns whose sum over all rows is that of the model. Parameters may be shared."""
_SHOWN_METHODS = ("head", "sort_values", "groupby", "query", "to_csv", "to_dict", "to_markdown")


def _own_column(name: str, table: pd.DataFrame) -> str | None:
    return next((own for own in OF_COLUMNS.get(name, ()) if own in table.columns), None)
