"""All stages at once: what each holds, and what becomes of each node."""

from __future__ import annotations

from fxlab.view_model.measurements.measurement import Measurement
from fxlab.view_model.stage_tables import nodes_of_stages, summary_of_stages

STAGES = Measurement(
    "stages",
    "Stages",
    "Counts what each pass has added, removed and changed, and compares the outputs of each stage with the "
    "original's.",
    "Compare the stages",
    "Comparing the stages",
    "Stage",
    summary_of_stages,
    of_stages=True,
)

NODES_BY_STAGE = Measurement(
    "nodes-by-stage",
    "Nodes by stage",
    "Follows each node from the original through all passes: what it becomes, and where it ends. Nothing is "
    "run.",
    "Follow the nodes",
    "Following the nodes through the stages",
    "Node",
    nodes_of_stages,
)
