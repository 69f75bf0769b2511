"""Overlays that are given: tables, mappings and files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxlab.base.first_use import pd
from fxlab.overlays.overlay import Overlay, from_table

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
