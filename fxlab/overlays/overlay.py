"""A value for each node of a graph, by which pictures are coloured, also given as a table or a file."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from torch.fx import GraphModule

from fxlab.base.checks import describe, type_error
from fxlab.base.first_use import pd
from fxlab.operators.node_info import module_path

Value = float | str
Combine = Literal["sum", "max"]
Kind = Literal["number", "category", "text"]
MIXED = "mixed"
"""The value of a group whose nodes have different ones that cannot be combined."""


@dataclass(frozen=True)
class Overlay:
    """A value for each node or module: a number by which boxes are coloured, a category, or a text.

    Parameters
    ----------
    name
        The name under which it is chosen.
    values
        Name of a node, or else path of a module -> value. Some may be missing. The value of a module is that
        of its box while that is closed; other boxes combine the values in them.
    title
        The heading of the legend; the name, if left out.
    kind
        ``"number"`` is a scale of colours, ``"category"`` has a colour for each value, and ``"text"`` is
        written on boxes and colours none. Left out, numbers are numbers, and anything else categories.
    combine
        The value of a group, where values are numbers: the ``"sum"`` of its nodes' (costs) or their ``"max"``
        (errors).
    unit
        ``"s"``, ``"B"`` or nothing; numbers are shown with it.
    labels
        Name of a node, or path of a module -> a few words that are written on its box.

    Examples
    --------
    >>> Overlay("time", {"a": 1.0, "b": 2.0}, unit="s").of(["a", "b"])
    3.0
    >>> Overlay("partition", {"encoder": 0, "head": 1}, kind="category").of([], "encoder")
    '0'
    """

    name: str
    values: Mapping[str, Value]
    title: str = field(default="", kw_only=True)
    kind: Kind | Literal[""] = field(default="", kw_only=True)
    combine: Combine = field(default="sum", kw_only=True)
    unit: str = field(default="", kw_only=True)
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for argument in ("name", "title", "unit"):
            text = getattr(self, argument)
            if not isinstance(text, str) or (argument == "name" and not text):
                raise type_error(argument, "a text", text)
        if self.combine not in get_args(Combine):
            raise ValueError(f"combine: expected 'sum' or 'max', got {self.combine!r}.")
        for argument in ("values", "labels"):
            if not isinstance(getattr(self, argument), Mapping):
                given = describe(getattr(self, argument))
                raise TypeError(f"{argument}: expected a mapping of names of nodes or modules, got {given}.")
        values = cleaned(self.values)
        kind = self.kind or ("category" if any(isinstance(v, str) for v in values.values()) else "number")
        if kind not in get_args(Kind):
            raise ValueError(f"kind: expected 'number', 'category' or 'text', got {self.kind!r}.")
        wrong = [name for name, value in values.items() if isinstance(value, str)]
        if self.kind == "number" and wrong:
            raise ValueError(f"values: expected numbers, got {values[wrong[0]]!r} for {wrong[0]!r}.")
        if kind != "number":
            values = {name: _word(value) for name, value in values.items()}
        labels = {str(name): str(label) for name, label in self.labels.items()}
        labels = {name: str(value) for name, value in values.items()} | labels if kind == "text" else labels
        own = {"title": self.title or self.name, "kind": kind, "values": values, "labels": labels}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def is_numeric(self) -> bool:
        """Whether boxes are coloured by a scale."""
        return self.kind == "number"

    def of(self, names: Iterable[str], path: str = "") -> Value | None:
        """Return the value of a box that draws some nodes; ``None`` if none of them has one.

        ``path``: the module that these are, if they are one; its own value goes before those of its nodes.
        """
        if path in self.values:
            return self.values[path]
        return self.combined(self.values[name] for name in names if name in self.values)

    def combined(self, found: Iterable[Value]) -> Value | None:
        """Return the value of a box that draws several; ``None`` for none."""
        values = [*found]
        if not values:
            return None
        if not self.is_numeric:
            words = {str(value) for value in values}
            return words.pop() if len(words) == 1 else MIXED
        numbers_ = [float(value) for value in values]
        return math.fsum(numbers_) if self.combine == "sum" else max(numbers_)

    def on(self, graph_module: GraphModule) -> Overlay:
        """Return the overlay with values of modules given to single nodes, or to all of a category."""
        values, labels = dict[str, Any](self.values), dict[str, Any](self.labels)
        names = {node.name for node in graph_module.graph.nodes}
        called = set[str]()
        for node in graph_module.graph.nodes:
            paths = [str(node.target)] if node.op == "call_module" else []
            if self.kind == "category":
                paths += reversed([*_enclosing(module_path(node))])
            elif called.issuperset(paths):
                continue  # a second call, of which a cost would count twice
            called.update(paths)
            for found in (values, labels):
                known = next((path for path in paths if path in found and path not in names), None)
                if known is not None:
                    found.setdefault(node.name, found[known])
        return replace(self, values=values, labels=labels)

    def check_is_of(self, graph_module: GraphModule) -> None:
        """Raise the ``ValueError`` for an overlay that has no value for any node or module of a graph."""
        for node in graph_module.graph.nodes:
            if not {node.name, str(node.target), *_enclosing(module_path(node))}.isdisjoint(self.values):
                return
        raise ValueError(
            f"overlay: {self.name!r} has no value for any node; expected names of nodes of the graph, or "
            f"paths of its modules, got {', '.join(map(repr, [*self.values][:3])) or 'no values'}."
        )

    def label_of(self, names: Iterable[str], path: str = "") -> str:
        """Return the words that are written on a box; empty if there are none."""
        known = (self.labels[name] for name in (path, *names) if name in self.labels)
        return next(known, "")


def _enclosing(path: str) -> Iterator[str]:
    """Yield a path and those around it, outermost first."""
    return itertools.accumulate(path.split("."), "{}.{}".format)


def _word(value: Value) -> str:
    """Return a number as the category that it stands for."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def from_table(table: pd.Series[Any] | pd.DataFrame, *, combine: Combine = "sum") -> list[Overlay]:
    """Return an overlay of a series, or one for each column of numbers or words of a table.

    Parameters
    ----------
    table
        Indexed by the names of nodes, each there once.
    combine
        How the values of a group's nodes are combined.

    Raises
    ------
    TypeError
        If it is neither a series nor a table, or its values are neither numbers nor words.
    ValueError
        If a name is there more than once.
    """
    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else "value")
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            "overlay: expected a name, a pandas.Series or pandas.DataFrame indexed by node names, a file "
            f"(.csv or .json), or an fxlab.overlays.Overlay, got {describe(table)}."
        )
    given = table.index.to_series()
    table = table[(given.notna() & (given != "")).to_numpy()]
    names = table.index.map(str)
    if not names.is_unique:
        raise ValueError(
            f"overlay: {names[names.duplicated()][0]!r} is there more than once; expected one value for each "
            "name. Combine them: table.groupby(level=0).sum()."
        )
    found = []
    for name, column in table.items():
        values: Mapping[Any, Any] = column.dropna().to_dict()
        try:
            found.append(Overlay(str(name), values, combine=combine))
        except TypeError:  # a column of shapes, say
            if len(table.columns) == 1:
                raise
    return [overlay for overlay in found if overlay.values or len(table.columns) == 1]


def cleaned(values: Mapping[Any, Any]) -> dict[str, Value]:
    """Return the values that are known, as numbers and words; TypeError for any other."""
    kept: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, str):
            kept[str(name)] = value
        elif value is not None:
            try:
                number = float(value)
            except Exception:  # the value is anybody's
                raise type_error(f"values: {name}", "a number or a text", value) from None
            if not math.isnan(number):
                kept[str(name)] = number
    return kept


_FILES = (".csv", ".json")
_FIELDS = frozenset({"values", "title", "kind", "combine", "unit", "labels"})


def is_overlay_file(value: Any) -> bool:
    """Tell whether something is the path of a file of overlays, rather than the name of one."""
    return isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(_FILES))


def overlays_of(given: Any) -> list[Overlay]:
    """Return overlays that are given as such, as a table, a mapping or a file, or in a list."""
    if isinstance(given, Overlay):
        return [given]
    if isinstance(given, Mapping):
        given = pd.Series(given)
    if isinstance(given, list | tuple):
        return [overlay for each in given for overlay in overlays_of(each)]
    return read_overlays(given) if is_overlay_file(given) else from_table(given)


def read_overlays(path: str | os.PathLike[str]) -> list[Overlay]:
    r"""Read overlays from a file.

    A CSV file has names of nodes or paths of modules in its first column, and an overlay in each other. A
    JSON file is ``{"latency": {"encoder.layer.0": 0.2}}``, or ``{"latency": {"values": {...}, "unit": "s"}}``
    with any of the arguments of :class:`fxlab.overlays.Overlay`.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of no such form.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "device.csv")
    ...     _ = file.write_text("node,latency,backend\nlinear,0.5,npu\nrelu,0.1,cpu\n")
    ...     [(overlay.name, overlay.kind) for overlay in read_overlays(file)]
    [('latency', 'number'), ('backend', 'category')]
    """
    file = Path(path)
    if file.suffix.lower() not in _FILES:
        raise ValueError(f"overlay: expected a file that ends in .csv or .json, got {file.name!r}.")
    try:
        if file.suffix.lower() == ".csv":
            table = pd.read_csv(file, index_col=0)
            # Names are texts: "0.10" is a path, and "NA" a name.
            table.index = pd.Index(pd.read_csv(file, usecols=[0], dtype=str, na_filter=False).iloc[:, 0])
            if table.columns.empty:
                raise ValueError("it has no column of values")
            return from_table(table)
        found = json.loads(file.read_text(encoding="utf-8"))
        return [_of_json(name, value) for name, value in found.items()]
    except OSError:
        raise
    except Exception as error:  # the contents of the file may raise anything
        raise ValueError(
            f"overlay: {file.name} is no table of values by node or module ({error}). Write a CSV file whose "
            'first column has the names, or JSON such as {"latency": {"encoder": 0.2}}.'
        ) from None


def _of_json(name: str, value: Any) -> Overlay:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} has no values by name")
    if isinstance(value.get("values"), Mapping) and value.keys() <= _FIELDS:
        return Overlay(name, **value)
    return Overlay(name, value)
