"""DataFrames as tables on the screen: columns and rows as data, and one line that says what they mean."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fxlab.screen.wire import clip, to_json

MOST_ROWS = 2_000
"""Rows that are sent; the number of all is sent too."""
MOST_NAMES = 30

_TITLES = {
    "shape": "Shape", "dtype": "Dtype", "max_abs_diff": "max |Δ|", "mean_abs_diff": "mean |Δ|",
    "max_rel_diff": "max relative Δ", "mismatched": "Mismatched", "elements": "Elements",
    "allclose": "Agrees", "nan_inf_disagreement": "NaN/inf differ", "note": "Note", "op": "Op",
    "target": "Target", "module_path": "Module path", "parameters": "Parameters", "inputs": "Inputs",
    "users": "Users", "changed_by": "Changed by", "max_ulp_diff": "max ULPs",
    "cosine_similarity": "Cosine", "worst_index": "Worst at",
    "before": "Stands for", "target_before": "Target before",
}  # fmt: skip
_ORDER = (
    "allclose", "max_abs_diff", "mean_abs_diff", "max_rel_diff", "max_ulp_diff", "cosine_similarity",
    "worst_index", "mismatched", "elements", "nan_inf_disagreement", "shape", "dtype", "note",
)  # fmt: skip


def table_state(frame: pd.DataFrame, index_title: str) -> dict[str, Any]:
    """Describe a table; its first column is the index of the frame."""
    shown = frame.head(MOST_ROWS)
    columns = [
        {"name": "index", "title": index_title, "kind": "text"},
        *({"name": str(n), "title": _TITLES.get(str(n), str(n)), "kind": _kind(frame[n])} for n in frame),
    ]
    values = [[_cell(value) for value in shown[name]] for name in shown]
    rows = [[clip(str(index), 400), *row] for index, *row in zip(shown.index, *values, strict=True)]
    return {"columns": columns, "rows": rows, "total": len(frame)}


def output_state(frame: pd.DataFrame, atol: float, rtol: float) -> dict[str, Any]:
    """Describe an output-difference table, with a verdict in words."""
    order = [name for name in _ORDER if name in frame] + [n for n in frame if n not in _ORDER]
    if "note" in order and not frame["note"].astype(str).str.strip().any():
        order.remove("note")
    agrees = bool(frame["allclose"].astype(bool).all())
    largest = pd.to_numeric(frame["max_abs_diff"], errors="coerce").max()
    return {
        "state": "ready",
        "agrees": agrees,
        "judgement": None,
        "isExact": bool(agrees and largest == 0),
        "text": _verdict(frame, atol, rtol, agrees, largest),
        "table": table_state(frame[order], "Output"),
    }


def _verdict(frame: pd.DataFrame, atol: float, rtol: float, agrees: bool, largest: float) -> str:
    tolerances = f"atol {atol:g}, rtol {rtol:g}"
    count = len(frame)
    tensors = f"{count} tensor{'s' if count != 1 else ''}"
    if agrees and largest == 0:
        return f"Outputs are equal in every bit of {tensors}."
    size = f"max |Δ| {largest:.1e}" if pd.notna(largest) else "differences that are no numbers"
    if agrees:
        return f"Outputs agree: {size} in {tensors}, within {tolerances}."
    different = int((~frame["allclose"].astype(bool)).sum())
    return f"Outputs differ in {different} of {tensors}: {size}, beyond {tolerances}."


def _kind(column: pd.Series[Any]) -> str:
    if pd.api.types.is_bool_dtype(column):
        return "bool"
    if pd.api.types.is_numeric_dtype(column):
        return "integer" if pd.api.types.is_integer_dtype(column) else "number"
    values = column.dropna()
    if len(values) and all(isinstance(value, bool) for value in values):
        return "bool"
    if column.name in ("inputs", "users"):
        return "nodes"
    return "shape" if column.name == "shape" else "text"


def _cell(value: object) -> Any:
    if isinstance(value, list | tuple) and len(value) > MOST_NAMES and isinstance(value[0], str):
        return [*(to_json(name) for name in value[:MOST_NAMES]), "…"]
    return to_json(value)
