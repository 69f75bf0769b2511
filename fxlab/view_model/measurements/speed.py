"""What the passes have bought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.validation import benchmark, graph_diff
from fxlab.view_model.measurements.measurement import Measurement

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


def _made(session: Session) -> tuple[pd.DataFrame, str]:
    steps = zip(session.applied, session.stages, session.stages[1:], strict=False)
    passes = [p for p, below, above in steps if not graph_diff(below, above).empty]
    table = benchmark(session, passes=passes)
    if not passes:
        return table, "No pass that is on changes anything: this is how long the original takes."
    last = table.iloc[-1]
    spread = f"{last['ratio_low']:.2f} to {last['ratio_high']:.2f}"
    return table, f"{last.name}: {last['ratio']:.2f} times the original's time ({spread}), {last['outcome']}."


SPEED = Measurement(
    "speed",
    "Speed",
    "Times the original and each combination of the passes that are on, in turns.",
    "Measure the speed",
    "Timing the model with each combination of passes",
    "Passes",
    _made,
)
