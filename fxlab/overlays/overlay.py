"""A value for each node of a graph, by which the graph is coloured."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import fx

from fxlab.checks import described
from fxlab.models.module_tensors import tensors_of
from fxlab.models.running import Inputs

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.validation import Statistics

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


@dataclass(frozen=True)
class Subject:
    """The graph, session and inputs that an overlay is measured on."""

    graph_module: fx.GraphModule
    original: fx.GraphModule | None = None
    inputs: Inputs | None = None
    weights: dict[tuple[Any, ...], Statistics] | None = None
    """Statistics of weights that are known, for subjects that share them."""

    @property
    def can_run(self) -> bool:
        """Whether there are inputs and weights."""
        return self.inputs is not None and not any(t.is_meta for t in tensors_of(self.graph_module))

    @cached_property
    def profile(self) -> pd.DataFrame:
        """The cost of each node; measured once for all overlays."""
        from fxlab.validation import profile

        return profile(self.graph_module, self.inputs, rounds=3)  # colours need no more

    @cached_property
    def statistics(self) -> dict[str, list[Statistics]]:
        """Statistics of the tensors of each node, by its name; from one run for all overlays."""
        if self.inputs is None:
            raise ValueError("inputs: expected what the model is called with, got None.")
        from fxlab.validation.tensor_values.node_values import statistics_by_node

        return statistics_by_node(self.graph_module, self.inputs, self.weights)

    @cached_property
    def errors(self) -> pd.DataFrame:
        """The distance of each node from the original's."""
        if self.original is None:
            raise ValueError(
                "An error is the distance from another graph, and there is none here. "
                "Compare them first: fxlab.compare_nodes(original, transformed, inputs)."
            )
        if self.graph_module is self.original:
            import pandas as pd

            names = [name for name, tensors in self.statistics.items() if tensors]
            return pd.DataFrame(0.0, index=names, columns=["accumulated", "introduced"])
        from fxlab.validation import compare_nodes

        return compare_nodes(self.original, self.graph_module, self.inputs)


@dataclass(frozen=True)
class Source:
    """A kind of overlay: what it is called, and how it is measured.

    ``measure`` returns a value for each node's name; ``runs`` tells whether it runs the model. ``traced``
    returns the values at the sizes that were traced, for models that are not run.
    """

    name: str
    title: str
    measure: Callable[[Subject], Mapping[Any, Any]]
    combine: Combine = "sum"
    unit: str = ""
    runs: bool = True
    traced: Callable[[Subject], Mapping[Any, Any]] | None = None

    def overlay(self, subject: Subject, *, run: bool = True) -> Overlay:
        """Measure a graph, or without ``run`` say what is known without running it.

        Where the values of some nodes are not known (NaN), sums are lower bounds, and the title says so.

        Raises
        ------
        ValueError
            If the model has to be run and cannot be, for example because it has no weights.
        """
        if not self.runs or (run and subject.can_run):
            measured = self.measure(subject)
            values = cleaned(measured)
        else:
            measured = self.traced(subject) if self.traced else {}
            values = cleaned(measured)
            if not values:
                why = (
                    "it has no weights" if subject.inputs is not None else "there are no inputs to run it on"
                )
                raise ValueError(f"{self.title}: the model has to be run, and {why if run else 'is not'}.")
        is_lower_bound = self.combine == "sum" and any(value != value for value in measured.values())
        title = f"{self.title} (at least)" if is_lower_bound else self.title
        return Overlay(self.name, title, values, self.combine, self.unit)


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
