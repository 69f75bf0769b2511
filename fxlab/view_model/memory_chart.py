"""The memory over a graph as a chart: stacked areas, a point for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.validation.cost.memory import KINDS
from fxlab.view_model.protocol import Chart
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    import pandas as pd

MEMORY = {kind: kind.capitalize() for kind in KINDS}
"""The kinds of memory, and the titles of their columns."""
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
