"""A pattern of torch's compiler as a small picture in a cell of a table, laid out by the page."""

import graphviz
import torch
from torch import fx

from fxlab.operators.node_info import target_text
from fxlab.view_model.wire import clip

MOST_NODES = 150
"""Larger patterns have no picture."""
_FONT = "Courier"
"""Of one width for all letters, so that boxes fit any monospaced font of the page."""


class PatternPicture(str):
    """A picture in the DOT language, in a cell of a table."""

    __slots__ = ()


def pattern_picture(graph: fx.Graph) -> PatternPicture:
    """Return a box for each input and operator of a pattern, with the constants that it takes."""
    if len(graph.nodes) > MOST_NODES:
        return PatternPicture()
    picture = graphviz.Digraph(
        graph_attr={"rankdir": "LR", "bgcolor": "transparent", "nodesep": "0.12", "ranksep": "0.3"},
        node_attr={"shape": "box", "style": "rounded", "fontname": _FONT, "fontsize": "11", "height": "0.3"},
        edge_attr={"arrowsize": "0.6"},
    )
    for node in graph.nodes:
        if node.op == "output":
            continue
        label = graphviz.escape(_words(node))
        picture.node(
            node.name, label, _attributes={"class": "fxi-pattern-input" if node.op == "placeholder" else ""}
        )
        for source in node.all_input_nodes:
            picture.edge(source.name, node.name)
    return PatternPicture(picture.source)


def _words(node: fx.Node) -> str:
    if node.op == "placeholder":
        return clip(node.name, 40)
    constants = [str(value) for value in node.args if _is_constant(value)]
    constants += [f"{name}={value}" for name, value in node.kwargs.items() if _is_constant(value)]
    return clip(" ".join([target_text(node), *constants]), 60)


def _is_constant(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_constant, value))
    return isinstance(value, int | float | str | torch.dtype)
