"""The screen as plain HTML, for the inspector: the view of a saved notebook where there is no kernel."""

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from fxlab.base.units import with_unit
from fxlab.view_model.protocol import Table

MOST_ROWS = 30
MOST_OF_PICTURE = 400_000
"""Characters of an SVG that is kept in a notebook; a larger one shows nothing that could be read."""
IN_PLACE_OF_THE_PAGE = "data-fxlab-static"
"""The attribute by which a page finds, and hides, the HTML that stands in its place until it is there."""
# JupyterLab's widget manager writes text alone while it waits for a widget, and where there is none.
_WITHOUT_A_PAGE = (
    ".jp-OutputArea-child:has([{}='{}']) + .jp-OutputArea-child:not(:has(.jp-OutputArea-output *)) "
    "{{ display: none }}"
)


def static_view(title: str, svg: str, tables: Mapping[str, Any], name: str) -> str:
    """Return a picture and the tables that the page below it shows, without scripts."""
    # As an image: notebooks that are not trusted show no other SVG, and nothing in an image can run.
    encoded = base64.b64encode(svg.encode("utf-8", "replace")).decode()
    style = "max-width: 100%; background: white"
    picture = f'<img alt="The graph" style="{style}" src="data:image/svg+xml;base64,{encoded}">'
    if len(svg) > MOST_OF_PICTURE:
        picture = "<p>The picture is too large for the notebook. Run the cell again to see it.</p>"
    parts = [f"<style>{_WITHOUT_A_PAGE.format(IN_PLACE_OF_THE_PAGE, name)}</style>"]
    parts += [f"<p><b>{escape(title)}</b></p>", picture]
    for table in ("outputs", "nodes"):
        state = tables.get(table) or {}
        words = f"<p>{escape(state.get('text') or '')}</p>"
        if words not in (parts[-1], "<p></p>"):
            parts.append(words)
        if state.get("table") and state["table"]["rows"]:
            parts.append(_table(state["table"]))
    return f"<div {IN_PLACE_OF_THE_PAGE}='{name}'>{''.join(parts)}</div>"


def _table(table: Table) -> str:
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
