"""Graphs as data from which a page draws every view of them by itself."""

from fxlab.view_model.graph_data.graph_data import GoneGraphError, GraphData
from fxlab.view_model.graph_data.shown_graph import ShownGraph

__all__ = ["GoneGraphError", "GraphData", "ShownGraph"]
