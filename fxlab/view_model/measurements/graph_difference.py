"""What is different in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.validation import graph_diff
from fxlab.view_model.measurements.measurement import Measurement

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


def _made(session: Session) -> tuple[pd.DataFrame, str]:
    table = graph_diff(session.original, session.graph_module)
    counts = [f"{count:,} {change}" for change, count in table["change"].value_counts().items()]
    return table, f"Nodes: {', '.join(counts)}." if counts else "The graph is that of the original."


GRAPH_DIFFERENCE = Measurement(
    "graph-difference",
    "Graph difference",
    "Lists the nodes that were added, removed, changed or rewired since the original. Nothing is run.",
    "Compare the graphs",
    "Comparing the graphs",
    "Node",
    _made,
)
