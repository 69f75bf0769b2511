"""All stages of a session at once, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fxlab.drawing.rendering.describe import counted
from fxlab.validation import compare_stages, nodes_by_stage
from fxlab.view_model.graph_view.stages import Stages

if TYPE_CHECKING:
    from fxlab.session import Session


def summary_of_stages(session: Session, *, in_float64: bool = True) -> tuple[pd.DataFrame, str]:
    """Return what each stage holds and what its pass changed, and a line about it."""
    table = compare_stages(session, in_float64=in_float64).set_axis(_titles(session))
    notes = [note for note in dict.fromkeys(table["note"]) if note]
    if not any(table["note"]):
        table = table.drop(columns="note")
    if table["status"].isna().all() and table["max_abs_diff"].isna().all():
        return table.drop(columns=["max_abs_diff", "status", "note"], errors="ignore"), (
            f"What each pass has changed in the stage below. Outputs are not compared: {'; '.join(notes)}."
        )
    return table, (
        "What each pass has changed in the stage below, how far the outputs are from the original's, and the "
        "verdict on that."
    )


def nodes_of_stages(session: Session) -> tuple[pd.DataFrame, str]:
    """Return what each node is at each stage, and a line about it."""
    table = nodes_by_stage(session).set_axis(_titles(session), axis="columns")
    everything = dict.fromkeys(node.name for stage in session.stages for node in stage.graph.nodes)
    if table.empty:
        return table, "Every node is the same at every stage."
    same = len(everything) - len(table)
    others = f"; {same:,} are the same at every stage" if same else ""
    return table, (
        f"{counted(len(table), 'node')} in which something happens{others}.\n"
        "· the same,  + added,  ≠ changed (in what),  ⇄ the same on other inputs,  → what stands for it,  "
        "— gone"
    )


def _titles(session: Session) -> list[str]:
    stages = Stages(session)
    return [f"{number}. {name}" for number, name in enumerate(stages.names)]
