"""Values that occur many times, written once; what is new is written when somebody takes it."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

from fxlab.view_model.protocol import Look

_Value = TypeVar("_Value")


class Table(Generic[_Value]):
    """Values by number, none of them twice."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._numbers: dict[str, int] = {}
        self._taken = 0

    def number(self, value: _Value) -> int:
        """Return the place of a value, which is added if it is new."""
        key = value if isinstance(value, str) else repr(value)  # in half the time of JSON
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(self._written(value))
        return found

    def take(self) -> list[_Value]:
        """Return the values that were added since this was asked last."""
        new, self._taken = self.values[self._taken :], len(self.values)
        return new

    def _written(self, value: _Value) -> _Value:
        """Return a new value as it is written."""
        return value


class Looks(Table[Any]):
    """Looks of boxes; the same box with other marks is written as what is different from the first."""

    def __init__(self) -> None:
        super().__init__()
        self._firsts: dict[str, tuple[int, Look]] = {}

    def _written(self, value: Look) -> Any:
        words = json.dumps([value["kind"], value["label"], value["details"], value["openable"]])
        if words not in self._firsts:
            self._firsts[words] = len(self.values), value
            return value
        number, first = self._firsts[words]
        return {"like": number} | {name: part for name, part in value.items() if part != first.get(name)}
