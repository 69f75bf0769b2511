"""The page of a sweep: models down, stacks across, and in each cell its verdict and where its report is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from fxlab.html_report.page import plain_page
from fxlab.sweeping.swept_cell import FAILED, SweptCell
from fxlab.units import counted, percent

_CSS = """
:root { color-scheme: light dark; --ink: #14171f; --bg: #ffffff; --muted: #5b6272; --line: #d9dce3;
  --good: #14703d; --bad: #b3261e; --link: #1a63c9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --bg: #14171f; --muted: #a3aaba;
  --line: #343a48; --good: #6cc48f; --bad: #f2867d; --link: #8ab4f8; } }
body { margin: 24px; color: var(--ink); background: var(--bg);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 17px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: 8px 14px; border: 1px solid var(--line); text-align: left; vertical-align: top; }
td { min-width: 150px; max-width: 340px; overflow-wrap: anywhere; }
a { color: var(--link); }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.good a, .bad a { color: inherit; }
.muted { color: var(--muted); }
td > div + div { margin-top: 2px; }
"""
_LONGEST = 400
"""Characters of a reason."""


def index_page(
    models: Sequence[str],
    stacks: Sequence[str],
    found: Mapping[tuple[str, str], SweptCell],
    *,
    stopped: bool,
) -> str:
    """Return the page; cells that are not judged yet say so."""
    total = len(models) * len(stacks)
    agreeing = sum(cell.agrees for cell in found.values())
    words = f"{agreeing} of {counted(total, 'cell')} agree with the original."
    if len(found) < total:
        words += f" {len(found)} judged so far{': it was stopped' if stopped else ''}."
    head = "".join(f'<th scope="col">{escape(stack)}</th>' for stack in stacks)
    rows = "".join(
        f'<tr><th scope="row">{escape(model)}</th>'
        + "".join(f"<td>{_cell(found.get((model, stack)))}</td>" for stack in stacks)
        + "</tr>"
        for model in models
    )
    note = (
        "Time and memory are multiples of the original's on the first batch. A verdict leads to the report, "
        "which shows the worst batch."
    )
    body = (
        f"<main><h1>Models and stacks</h1><p>{escape(words)}</p>"
        f'<div class="scroll"><table><thead><tr><th scope="col">Model</th>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="muted">{escape(note)}</p></main>'
    )
    return plain_page("Models and stacks", body, _CSS)


def _cell(cell: SweptCell | None) -> str:
    if cell is None:
        return '<div class="muted">not judged</div>'
    status = escape(cell.status)
    if cell.report:
        status = f'<a href="{escape(quote(cell.report))}">{status}</a>'
    parts = [f'<div class="{"good" if cell.agrees else "bad"}">{status}</div>']
    if not math.isnan(cell.agreement):
        ends = f"{percent(cell.agreement_low)} to {percent(cell.agreement_high)}"
        parts.append(f"<div>decides alike {percent(cell.agreement)} <span>({ends})</span></div>")
    if not math.isnan(cell.time):
        parts.append(
            f"<div>time {cell.time:.2f} ({cell.time_low:.2f} to {cell.time_high:.2f}), "
            f"memory {'unknown' if math.isnan(cell.memory) else f'{cell.memory:.2f}'}</div>"
        )
    if cell.status != FAILED:
        nodes = f"{cell.nodes_before:,} nodes become {cell.nodes_after:,}"
        parts.append(f'<div class="muted">{counted(cell.batches, "batch")}; {nodes}</div>')
    said = [] if cell.agrees else [cell.reason]
    parts += [f'<div class="muted">{escape(text[:_LONGEST])}</div>' for text in (*said, *cell.notes)]
    return "".join(parts)
