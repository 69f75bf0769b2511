"""What each node costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.validation import profile
from fxlab.view_model.measurements.measurement import Measurement

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


def _made(session: Session) -> tuple[pd.DataFrame, str]:
    table = profile(session.graph_module, session.inputs).sort_values("time", ascending=False)
    slowest = table["share"].head(10)
    words = f"The {len(slowest)} slowest of {len(table):,} nodes take {slowest.sum():.0%} of the time."
    columns = ["time", "share", "flops", "parameters", "bytes_in", "bytes_out", "peak_memory", "target"]
    return table[columns], words


NODE_COST = Measurement(
    "node-cost",
    "Cost",
    "Runs the present model node by node and takes the time, the operations and the memory of each.",
    "Measure the cost",
    "Measuring each node",
    "Node",
    _made,
)
