"""Graphs of functions that a model hands to torch, recorded inside of its own graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_module import ensure_picklable
from fxlab.models.safe_code import protect
from fxlab.torch_private import pytree
from fxlab.tracing.obstacles import Obstacle


class RecordedBody:
    """The graph of a function while it runs; what it uses of the graph around it is given to it.

    Attributes
    ----------
    graph : Graph
        What is recorded.
    given : list of torch.fx.Node or tensors
        What the graph is to be called with.
    branches : dict of str to GraphModule
        The graphs of branches inside, by the name that ``get_attr`` nodes know them by.
    """

    has_values = True
    """Whether its tensors are tensors of their own, and not what is mapped of them."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.given: list[Any] = []
        self.branches: dict[str, GraphModule] = {}
        self._inherited: dict[Node, Node] = {}

    def inherited(self, node: Node) -> Node:
        """Return the placeholder that stands for a node of the graph around this one."""
        if node not in self._inherited:
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                self._inherited[node] = self.placeholder(node.name)
            if self.has_values and "val" in node.meta:
                self._inherited[node].meta["val"] = node.meta["val"]
            self.given.append(node)
        return self._inherited[node]

    def placeholder(self, name: str) -> Node:
        """Add an input."""
        node = self.graph.placeholder(name)
        node.target = node.name  # which no other has
        return node

    def module(self, name: str) -> GraphModule:
        """Return the graph as a module, which holds no tensors."""
        root = nn.Module()
        for path, branch in self.branches.items():
            root.add_module(path, branch)
        module = GraphModule(root, protect(self.graph), class_name=name)
        ensure_picklable(module)
        return module


class Branch(RecordedBody):
    """One of the functions of ``torch.cond``.

    Parameters
    ----------
    given
        What the branch before is called with, so that both are called with the same.
    """

    def __init__(self, given: list[Node]) -> None:
        super().__init__()
        for node in given:
            self.inherited(node)

    def run(self, function: Callable[[], Any], node_of: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Call the function, end the graph with its results, and return these and their structure."""
        leaves, structure = pytree.tree_flatten(function())
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise Obstacle.BRANCH(reason="gives something that is no tensor")
        nodes = tuple(map(node_of, leaves))
        if any(node.op == "placeholder" for node in nodes) or len({*nodes}) < len(nodes):
            raise Obstacle.BRANCH(reason="gives a tensor that is there already, and no copy")
        self.graph.output(nodes)
        return tuple(leaves), structure
