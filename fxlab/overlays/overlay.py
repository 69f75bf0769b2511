"""A value for each node of a graph, by which the graph is coloured."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fxlab.checks import described

if TYPE_CHECKING:
    import pandas as pd


Value = float | str
Combine = Literal["sum", "max"]
MIXED = "mixed"
"""The value of a group whose nodes have different ones that cannot be combined."""


@dataclass(frozen=True)
class Overlay:
    """A value for each node: a number, or a word such as a dtype.

    Parameters
    ----------
    name
        What it is known by.
    title
        What it is called on the screen.
    values
        Node name -> value. Nodes may be missing.
    combine
        What a group is shown with, where values are numbers: the ``"sum"`` of its nodes' (costs) or their
        ``"max"`` (errors).
    unit
        ``"s"``, ``"B"`` or nothing; numbers are shown with it.

    Examples
    --------
    >>> overlay = Overlay("time", "Time", {"a": 1.0, "b": 2.0}, unit="s")
    >>> overlay.of(["a", "b"])
    3.0
    """

    name: str
    title: str
    values: Mapping[str, Value]
    combine: Combine = "sum"
    unit: str = ""

    def __post_init__(self) -> None:
        if self.combine not in get_args(Combine):
            raise ValueError(f"combine: expected 'sum' or 'max', got {self.combine!r}.")

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers."""
        return not any(isinstance(value, str) for value in self.values.values())

    def of(self, names: Iterable[str]) -> Value | None:
        """Return the value of a box that draws some nodes; ``None`` if none of them has one."""
        values = [self.values[name] for name in names if name in self.values]
        if not values:
            return None
        if any(isinstance(value, str) for value in values):
            words = {str(value) for value in values}
            return words.pop() if len(words) == 1 else MIXED
        numbers_ = [float(value) for value in values]
        return math.fsum(numbers_) if self.combine == "sum" else max(numbers_)


def from_table(table: pd.Series[Any] | pd.DataFrame, *, combine: Combine = "sum") -> list[Overlay]:
    """Return an overlay of a series, or one for each column of numbers or words of a table.

    Parameters
    ----------
    table
        Indexed by the names of nodes.
    combine
        What groups are shown with.

    Raises
    ------
    TypeError
        If it is neither a series nor a table.
    """
    import pandas as pd

    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else "value")
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            "overlay: expected a name, a pandas.Series or pandas.DataFrame indexed by node names, or an "
            f"fxlab.overlays.Overlay, got {described(table)}."
        )
    return [
        Overlay(str(name), str(name), cleaned(column.to_dict()), combine) for name, column in table.items()
    ]


def cleaned(values: Mapping[Any, Any]) -> dict[str, Value]:
    """Return the values that a colour can stand for: finite numbers and words. An infinite one is a word."""
    kept: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, str):
            kept[str(name)] = value
        elif isinstance(value, numbers.Real) and not math.isnan(float(value)):
            kept[str(name)] = float(value)
    return kept
