"""GraphModule -> hierarchy -> view -> Graphviz -> SVG; no screen.

>>> import torch
>>> from fxlab.drawing import View, build_hierarchy, render
>>> graph_module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
>>> svg = render(View.default(build_hierarchy(graph_module)))
>>> svg.startswith("<svg")
True
"""

from fxlab.drawing.drawing import Drawing, draw
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf, build_hierarchy
from fxlab.drawing.rendering.dot import render, to_dot
from fxlab.drawing.rendering.layout import LayoutError, LayoutTimeoutError, start_layout_worker
from fxlab.drawing.view import View

__all__ = [
    "Drawing", "Group", "Hierarchy", "LayoutError", "LayoutTimeoutError", "Leaf", "View", "build_hierarchy",
    "draw", "render", "start_layout_worker", "to_dot",
]  # fmt: skip
