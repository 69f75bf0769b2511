"""Plots of the tables that a line says more of than rows do. They need matplotlib, which is an extra."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlab.units import with_unit
from fxlab.validation.verdicts.comparison import Verdict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMES = 16
"""Names of nodes that are written along the axis."""

LONGEST_NAME = 26
"""Characters of a name along the axis."""

_SMALLEST = 1e-18
"""Errors are drawn from here on: none in float64 is smaller, but for those of products of tiny numbers."""


def plot_node_differences(table: pd.DataFrame, verdict: Verdict | None = None) -> Figure:
    """Draw the error along the graph, accumulated and introduced, node by node.

    Parameters
    ----------
    table
        What :func:`compare_nodes` returned.
    verdict
        What :func:`verdict` said of the same two models. If given, the original's own rounding is drawn as a
        line: the largest of its outputs' errors against float64.

    Returns
    -------
    matplotlib.figure.Figure
        Shown as the value of a notebook's cell, or saved with ``savefig``. Errors are relative, on a
        logarithmic scale; those of zero are not drawn, infinite ones are crosses at the upper edge.

    Raises
    ------
    TypeError
        If ``table`` is no DataFrame, or ``verdict`` no verdict.
    ValueError
        If ``table`` lacks a column, or has no rows.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import torch
    >>> from fxlab import ChangeTrueDivToMulByInverse, compare_nodes
    >>> graph, changed = (torch.fx.symbolic_trace(lambda x: (x / 3).exp()) for _ in range(2))
    >>> table = compare_nodes(graph, ChangeTrueDivToMulByInverse()(changed), torch.randn(99))
    >>> figure = plot_node_differences(table)
    >>> figure.axes[0].get_ylabel()
    'relative error'
    """
    _check_table(table, ("accumulated", "introduced"), "compare_nodes")
    if verdict is not None and not isinstance(verdict, Verdict):
        raise TypeError(f"verdict: expected what fxlab.verdict returns, got {type(verdict).__name__}")
    with _figure(9, 4.2) as (figure, axes):
        positions = np.arange(len(table))
        _draw_errors(axes, positions, table["accumulated"], "accumulated", ".-", "C0")
        _draw_errors(axes, positions, table["introduced"], "introduced by the node", "o", "C3")
        own = None if verdict is None else _own_rounding(verdict)
        if own:
            axes.axhline(own, color="0.5", linestyle="--", label="the model's own rounding")
        axes.set_yscale("log")
        axes.set_ylabel("relative error")
        if not table[["accumulated", "introduced"]].to_numpy(float).any():
            axes.text(0.5, 0.5, "every bit is the same", transform=axes.transAxes, ha="center", color="0.4")
        step = max(1, math.ceil(len(table) / MOST_NAMES))
        axes.set_xticks(
            positions[::step], [_short(str(name)) for name in table.index[::step]], rotation=40, ha="right"
        )
        axes.set_xlim(-0.5, len(table) - 0.5)
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return figure


def plot_benchmark(table: pd.DataFrame) -> Figure:
    """Draw the time with each combination of passes, as a ratio to the original's.

    Parameters
    ----------
    table
        What :func:`benchmark` returned.

    Returns
    -------
    matplotlib.figure.Figure
        A bar for each combination, with the spread of nine of ten rounds on each side, green where all of it
        is faster and red where all of it is slower. The time for one call stands beside.

    Raises
    ------
    TypeError
        If ``table`` is no DataFrame.
    ValueError
        If ``table`` lacks a column, or has no rows.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"time": 0.01, "ratio": 0.8, "ratio_low": 0.7, "ratio_high": 0.9, "outcome": "faster"}
    >>> figure = plot_benchmark(pd.DataFrame([row], index=["merge-linears"]))
    >>> figure.axes[0].get_xlabel()
    "time, relative to the original's"
    """
    _check_table(table, ("time", "ratio", "ratio_low", "ratio_high", "outcome"), "benchmark")
    colours = {"faster": "C2", "slower": "C3"}
    with _figure(8, 1.2 + 0.36 * len(table)) as (figure, axes):
        rows = np.arange(len(table))
        ratio = table["ratio"].to_numpy(float)
        spread = np.stack([ratio - table["ratio_low"], table["ratio_high"] - ratio]).clip(min=0)
        axes.barh(
            rows,
            ratio,
            xerr=spread,
            color=[colours.get(str(outcome), "0.7") for outcome in table["outcome"]],
            error_kw={"ecolor": "0.25", "capsize": 3},
        )
        axes.axvline(1, color="0.25", linestyle="--")
        # What else the machine did in a few rounds must not make the bars too small to compare.
        axes.set_xlim(0, max(1.1 * table["ratio_high"].max(), 1.2) if spread.max() < 1 else 2.5 * ratio.max())
        times = [f"{name}  {with_unit(seconds, 's')}" for name, seconds in table["time"].items()]
        axes.set_yticks(rows, times)
        axes.invert_yaxis()
        axes.set_xlabel("time, relative to the original's")
    return figure


def _check_table(table: object, columns: tuple[str, ...], source: str) -> None:
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table: expected what fxlab.{source} returns, got {type(table).__name__}")
    missing = [name for name in columns if name not in table]
    if missing:
        raise ValueError(f"table: it has no column {missing[0]!r}; give what fxlab.{source} returns.")
    if table.empty:
        raise ValueError("table: it has no rows, so there is nothing to draw.")


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Make a figure of its own, which no state of pyplot knows; names in it are never read as formulas."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'fxlab[plots]'.") from error
    with matplotlib.rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="both", color="0.92")
        axes.set_axisbelow(True)
        yield figure, axes
        vars(figure)["_repr_svg_"] = _svg_of(figure)


def _svg_of(figure: Figure) -> Callable[[], str]:
    """Return what shows a figure in a notebook, whether pyplot is set up there or not."""

    def svg() -> str:
        text = io.StringIO()
        figure.savefig(text, format="svg")
        return text.getvalue()

    return svg


def _draw_errors(
    axes: Axes, positions: np.ndarray[Any, Any], errors: pd.Series[float], label: str, style: str, colour: str
) -> None:
    values = errors.to_numpy(float)
    drawn = np.where(np.isfinite(values) & (values >= _SMALLEST), values, np.nan)
    axes.plot(positions, drawn, style, color=colour, markersize=3.5, linewidth=1.6, label=label)
    infinite = positions[np.isinf(values)]
    axes.plot(
        infinite,
        np.ones(len(infinite)),
        "x",
        color=colour,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )


def _own_rounding(verdict: Verdict) -> float | None:
    errors = verdict.table["own_error"].to_numpy(float)
    finite = errors[np.isfinite(errors) & (errors > 0)]
    return float(finite.max()) if len(finite) else None


def _short(name: str) -> str:
    """Return a name that fits below an axis; nodes of a model are told apart by how they end."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
