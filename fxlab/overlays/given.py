"""Overlays that are given: tables, files, and measurements of profilers."""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fxlab.checks import unexpected
from fxlab.first_use import pd
from fxlab.overlays.overlay import Overlay, from_table

_FILES = (".csv", ".json")
_FIELDS = frozenset({"values", "title", "kind", "combine", "unit", "labels"})
_HANDLES = "debug_handle"
_MICROSECONDS = 1e-6
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


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


@contextmanager
def module_ranges(model: nn.Module) -> Iterator[None]:
    """Name each call of a module in profiles of ``torch.profiler``, for :func:`fxlab.overlays.from_profiler`.

    Examples
    --------
    >>> from torch.profiler import profile
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with profile() as measured, module_ranges(model):
    ...     _ = model(torch.ones(1, 2))
    >>> sorted(from_profiler(measured).values)
    ['0', '1']
    """
    ranges: list[Any] = []

    def enter(path: str) -> Any:
        def start(*_: Any) -> None:
            ranges.append(torch.profiler.record_function(path))
            ranges[-1].__enter__()

        return start

    def leave(*_: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    hooks = []
    try:
        for path, module in model.named_modules():
            if path:
                hooks.append(module.register_forward_pre_hook(enter(path)))
                hooks.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def from_profiler(profile: Any, *, name: str = "profile", device: bool | None = None) -> Overlay:
    """Return the times that ``torch.profiler`` has measured of ranges: of modules and nodes by their names.

    Parameters
    ----------
    profile
        A profile, of a run in :func:`fxlab.overlays.module_ranges`, or with
        ``torch.profiler.record_function(name)`` around the parts to be told apart.
    name
        The name of the overlay.
    device
        Whether to take times on the accelerator. Left out, they are taken if there are some.

    Raises
    ------
    TypeError
        If it is not a profile.
    ValueError
        If it has no ranges.
    """
    if not callable(getattr(profile, "key_averages", None)):
        raise unexpected("profile", "a torch.profiler.profile that has ended", profile)
    events = [event for event in profile.key_averages() if getattr(event, "is_user_annotation", False)]
    if not events:
        raise ValueError(
            "profile: it has no ranges. Run the model in `with profile() as p, module_ranges(model):`, or "
            "name parts with torch.profiler.record_function(name)."
        )
    on_device = {event.key: event.device_time_total for event in events if event.device_time_total}
    on_cpu = {event.key: event.cpu_time_total for event in events if event.cpu_time_total}
    times = on_device if device or (device is None and on_device) else on_cpu
    values = {key: time * _MICROSECONDS for key, time in times.items()}
    return Overlay(name, values, title="Time on the device" if times is on_device else "Time", unit="s")


def from_etdump(
    events: pd.DataFrame | str | os.PathLike[str],
    graph_module: torch.fx.GraphModule | None = None,
    *,
    column: str = "avg",
    scale: str = "ms",
) -> Overlay:
    """Return the times that ExecuTorch has measured on a device, by node.

    Parameters
    ----------
    events
        The table of ``executorch.devtools.Inspector(...).to_dataframe()``, or a CSV file of it.
    graph_module
        The graph whose nodes have the debug handles of the events. Without it, nodes are those that the table
        names.
    column
        The column of times.
    scale
        The unit of these times: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.

    Raises
    ------
    ValueError
        If the table has no such column, or names no nodes.

    Notes
    -----
    The time of several nodes that ran as one is that of the last; the label of its box says how many.

    Examples
    --------
    >>> import pandas as pd
    >>> stacks = {"aten_mm": "...", "aten_relu": "..."}
    >>> table = pd.DataFrame({"event_name": ["call"], "avg": [2.0], "stack_traces": [stacks]})
    >>> from_etdump(table).values
    {'aten_relu': 0.002}
    """
    table = events if isinstance(events, pd.DataFrame) else pd.read_csv(events)
    if scale not in _UNITS:
        raise ValueError(f"scale: expected one of {', '.join(_UNITS)}, got {scale!r}.")
    if column not in table:
        raise ValueError(f"column: there is no {column!r} in the table. It has {', '.join(map(str, table))}.")
    by_handle = defaultdict[Any, list[str]](list)
    for node in () if graph_module is None else graph_module.graph.nodes:
        for handle in _items(node.meta.get(_HANDLES)):
            by_handle[handle].append(node.name)
    order = {
        node.name: at for at, node in enumerate(() if graph_module is None else graph_module.graph.nodes)
    }
    values, labels = defaultdict[str, float](float), dict[str, str]()
    for _, row in table.iterrows():
        names = [*_items(row.get("stack_traces")), *_items(row.get("module_hierarchy"))]
        names = [name for name in dict.fromkeys(map(str, names)) if not order or name in order]
        handles = (handle for key in ("debug_handles", "debug_handle") for handle in _items(row.get(key)))
        names = names or [name for handle in handles for name in by_handle[handle]]
        if names and row[column] == row[column]:
            last = max(names, key=lambda name: order.get(name, names.index(name)))
            values[last] += float(row[column]) * _UNITS[scale]
            if len(names) > 1:
                labels[last] = f"{len(names)} nodes as one"
    if not values:
        raise ValueError(
            "events: no event names a node. Give the ETRecord to the Inspector, so that its table has "
            "stack_traces; or the graph whose nodes have debug handles."
        )
    return Overlay("etdump", dict(values), title="Time on the device", unit="s", labels=labels)


def _items(value: Any) -> list[Any]:
    """Return the contents of a cell: keys of a mapping, or items; of a CSV file, as Python writes them."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            return []
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return [*value]
    return [] if value is None or value != value else [value]
