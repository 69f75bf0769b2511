"""The screen as plain HTML: what a saved notebook shows where there is no kernel."""

from __future__ import annotations

from html import escape
from typing import Any

from fxlab.units import with_unit

MOST_ROWS = 30


def static_view(title: str, svg: str, tables: dict[str, Any]) -> str:
    """Return a picture and the tables that the page below it shows, without styles and scripts.

    Parameters
    ----------
    title
        Words above the picture.
    svg
        The picture, as :mod:`fxlab.drawing` writes it.
    tables
        The state of the tables, as the page receives it.
    """
    picture = svg.replace("<svg ", '<svg style="max-width: 100%; height: auto; background: white" ', 1)
    parts = [f"<p><b>{escape(title)}</b></p>", picture]
    for name in ("outputs", "nodes"):
        state = tables.get(name) or {}
        if state.get("text"):
            parts.append(f"<p>{escape(state['text'])}</p>")
        if state.get("table") and state["table"]["rows"]:
            parts.append(_table(state["table"]))
    return f"<div>{''.join(parts)}</div>"


def _table(table: dict[str, Any]) -> str:
    head = "".join(f"<th>{escape(column['title'])}</th>" for column in table["columns"])
    rows = [
        "<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>"
        for row in table["rows"][:MOST_ROWS]
    ]
    rest = table["total"] - len(rows)
    more = f"<p>and {rest:,} more rows</p>" if rest else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}"


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return with_unit(cell)
    return ", ".join(map(_text, cell)) if isinstance(cell, list) else str(cell)
