"""GraphModule -> hierarchy -> view -> Graphviz -> SVG; no screen.

>>> import torch
>>> from fxlab.drawing import View, build_hierarchy, render
>>> graph_module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
>>> picture = render(View.default(build_hierarchy(graph_module)))
>>> picture.svg.startswith("<svg")
True
"""

from fxlab.drawing.drawing import Drawing, draw
from fxlab.drawing.hierarchy.hierarchy import Group, Hierarchy, Leaf, build_hierarchy
from fxlab.drawing.rendering.dot import to_digraph
from fxlab.drawing.rendering.layout import LayoutError, LayoutTimeoutError, cancel_layout, start_layout_worker
from fxlab.drawing.rendering.picture import BoxInfo, EdgeInfo, Picture
from fxlab.drawing.rendering.render import render
from fxlab.drawing.view import View

__all__ = [
    "BoxInfo",
    "Drawing",
    "EdgeInfo",
    "Group",
    "Hierarchy",
    "LayoutError",
    "LayoutTimeoutError",
    "Leaf",
    "Picture",
    "View",
    "build_hierarchy",
    "cancel_layout",
    "draw",
    "render",
    "start_layout_worker",
    "to_digraph",
]
