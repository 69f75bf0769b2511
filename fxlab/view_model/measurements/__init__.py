"""Tables that take a while, and are made when somebody asks for them: a file for each, and a line here."""

from fxlab.view_model.measurements.graph_difference import GRAPH_DIFFERENCE
from fxlab.view_model.measurements.measurement import Measurement
from fxlab.view_model.measurements.node_cost import NODE_COST
from fxlab.view_model.measurements.node_differences import NODE_DIFFERENCES
from fxlab.view_model.measurements.speed import SPEED
from fxlab.view_model.measurements.stages import NODES_BY_STAGE, STAGES

MEASUREMENTS: tuple[Measurement, ...] = (
    STAGES, NODES_BY_STAGE, NODE_DIFFERENCES, GRAPH_DIFFERENCE, NODE_COST, SPEED,
)  # fmt: skip
"""In the order of their tabs."""

__all__ = ["MEASUREMENTS", "Measurement"]
