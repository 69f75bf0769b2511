"""Where along the graph the values start to move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.validation import compare_nodes, first_divergence
from fxlab.view_model.measurements.measurement import Measurement

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


_COLUMNS = [
    "accumulated", "introduced", "max_accumulated", "max_introduced", "original", "target", "shape",
]  # fmt: skip


def _made(session: Session) -> tuple[pd.DataFrame, str]:
    compared = session.original, session.graph_module, session.inputs
    table, found = compare_nodes(*compared), first_divergence(*compared)
    if found is None:
        return table[_COLUMNS], "No node differs by more than rounding."
    return table[_COLUMNS], f"The first that goes wrong is {found}."


NODE_DIFFERENCES = Measurement(
    "node-differences",
    "Node differences",
    "Runs the original and the present model side by side: how far each value has moved, and how far each "
    "node moves it by itself.",
    "Compare the nodes",
    "Comparing node by node",
    "Node",
    _made,
)
