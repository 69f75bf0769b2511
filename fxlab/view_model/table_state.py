"""DataFrames as tables of a page, with one line that explains them, and a chart of memory."""

from __future__ import annotations

from typing import Any

import fxlab.validation as validation
from fxlab.base.first_use import pd
from fxlab.base.units import with_unit
from fxlab.base.words import counted, listed
from fxlab.validation.cost.memory import KINDS
from fxlab.view_model.protocol import Cell, Chart, Column, ColumnKind, Outputs, Table
from fxlab.view_model.wire import clip, to_json

MEMORY = {kind: kind.capitalize() for kind in KINDS}
"""The kinds of memory, and the titles of their columns."""

MOST_ROWS = 2_000
"""Rows that are sent; the number of all is sent too."""
MOST_NAMES = 30

_NAMED_ALIKE = """
    shape dtype mismatched elements same_bits compared note op target module_path parameters inputs
    users changed_by target_before pass_ matched reason status own_error change op_before
    inputs_before time share bytes_in bytes_out peak_memory ratio speedup outcome nodes added
    removed changed rewired changes rewrites pass matches value output operators stack kernel
    made freed
"""
"""Columns whose titles are their names."""
_TITLES = {name: name.replace("_", " ").strip().capitalize() for name in _NAMED_ALIKE.split()} | {
    "max_abs_diff": "max |Δ|", "mean_abs_diff": "mean |Δ|", "max_rel_diff": "max relative Δ",
    "nan_inf_disagreement": "NaN/inf differ", "max_ulp_diff": "max ULPs", "cosine_similarity": "Cosine",
    "worst_index": "Worst at", "before": "Stands for", "transformed_error": "Error",
    "function_error": "Error in float64", "new_values_error": "Explained by rounding",
    "hidden": "A mistake could hide below", "accumulated": "Error so far", "introduced": "Introduced here",
    "max_accumulated": "max |Δ| so far", "max_introduced": "max |Δ| introduced", "original": "Compared with",
    "differs": "Differs in", "flops": "FLOPs", "ratio_low": "Ratio at least", "ratio_high": "Ratio at most",
    "low": "At least", "high": "At most", "interval": "Interval at 95 %", "n": "Of",
    "looked_at": "Open", "tried": "Tried at", "nearest": "Came furthest",
    "place": "Registered at", "live": "Alive",
}  # fmt: skip
_KINDS: dict[str, ColumnKind] = {
    "accumulated": "error", "introduced": "error", "time": "seconds", "share": "share", "bytes_in": "bytes",
    "bytes_out": "bytes", "peak_memory": "bytes", "inputs": "nodes", "users": "nodes",
    "inputs_before": "nodes", "differs": "nodes", "shape": "shape",
    "live": "bytes", "made": "bytes", "freed": "bytes", **dict.fromkeys(MEMORY.values(), "bytes"),
}  # fmt: skip
"""How columns are written that are not told by their values."""
_JUDGED = (
    "status", "reason", "transformed_error", "own_error", "function_error", "new_values_error", "hidden",
)  # fmt: skip
"""Columns of a verdict's table that stand before those of the differences."""
_ORDER = (
    *_JUDGED, "same_bits", "max_abs_diff", "mean_abs_diff", "max_rel_diff", "max_ulp_diff",
    "cosine_similarity", "worst_index", "mismatched", "elements", "compared", "nan_inf_disagreement", "shape",
    "dtype", "note",
)  # fmt: skip


def table_state(frame: pd.DataFrame, index_title: str) -> Table:
    """Describe a table; its first column is the index of the frame."""
    shown = frame.head(MOST_ROWS)
    columns: list[Column] = [
        {"name": str(n), "title": _TITLES.get(str(n), str(n)), "kind": _kind(frame[n])} for n in frame
    ]
    columns.insert(0, {"name": "index", "title": index_title, "kind": "text"})
    values = [[_cell(value) for value in shown[name]] for name in shown]
    rows = [[clip(str(index), 400), *row] for index, *row in zip(shown.index, *values, strict=True)]
    return {"columns": columns, "rows": rows, "total": len(frame)}


def output_state(frame: pd.DataFrame, verdict: validation.Verdict | None) -> Outputs:
    """Describe a table of output differences, in the words of the verdict as far as there is one."""
    frame = frame.drop(columns="allclose")
    if verdict is not None:
        judged = verdict.table[[*_JUDGED]].dropna(axis="columns", how="all")
        frame = judged.reindex(frame.index).join(frame)
    order = [name for name in _ORDER if name in frame]
    if "note" in order and not frame["note"].astype(str).str.strip().any():
        order.remove("note")
    return {
        "state": "ready",
        "agrees": None if verdict is None else agrees(verdict),
        "canJudge": verdict is None,
        "text": _unjudged(frame) if verdict is None else verdict_text(verdict),
        "table": table_state(frame[order], "Output"),
    }


def agrees(verdict: validation.Verdict) -> bool | None:
    """Tell whether a verdict agrees; ``None`` where nothing could be compared."""
    return None if verdict.status is validation.Status.NOTHING_COMPARED else verdict.agrees


def verdict_text(verdict: validation.Verdict) -> str:
    """Return a verdict as a sentence, and what was compared."""
    status, _, reason = str(verdict).partition(": ")
    compared = f", compared in {listed(verdict.outputs)} ({counted(verdict.compared, 'element')})"
    return clip(f"{status[:1].upper()}{status[1:]}{compared if verdict.compared else ''}: {reason}.", 600)


def _unjudged(frame: pd.DataFrame) -> str:
    different = frame[~frame["same_bits"].astype(bool)]
    largest = pd.to_numeric(frame["max_abs_diff"], errors="coerce").max()
    size = f"max |Δ| {with_unit(float(largest))}" if pd.notna(largest) else "non-numeric differences"
    return f"Not judged yet: bits differ in {len(different)} of {counted(len(frame), 'tensor')}, {size}."


def _kind(column: pd.Series[Any]) -> ColumnKind:
    if column.name in _KINDS:
        return _KINDS[str(column.name)]
    if pd.api.types.is_bool_dtype(column):
        return "bool"
    if pd.api.types.is_numeric_dtype(column):
        return "integer" if pd.api.types.is_integer_dtype(column) else "number"
    values = column.dropna()
    if len(values) and all(isinstance(value, bool) for value in values):
        return "bool"
    return "text"


def _cell(value: object) -> Cell:
    if isinstance(value, list | tuple) and len(value) > MOST_NAMES and isinstance(value[0], str):
        return [*(to_json(name) for name in value[:MOST_NAMES]), "…"]
    found: Cell = to_json(value)
    return found


_MOST_POINTS = 400
"""Of longer graphs, a point stands for as many nodes in a row, and is the one with the most bytes."""
BEFORE = "peak before"
"""In ``attrs`` of the table: the peak of the original, in bytes, to be drawn as a line."""


def memory_chart(table: pd.DataFrame) -> Chart:
    """Return the nodes and the bytes of each kind that are alive at them, as far as there are any."""
    step = -(-len(table) // _MOST_POINTS) or 1
    live = table["live"].to_numpy()
    points = [start + int(live[start : start + step].argmax()) for start in range(0, len(table), step)]
    shown = table.iloc[points]
    kinds = [kind for kind in MEMORY.values() if kind in table]
    return {
        "names": [clip(str(name), 400) for name in shown.index],
        "kinds": [{"title": kind, "values": shown[kind].tolist()} for kind in kinds],
        "before": table.attrs.get(BEFORE),
    }
