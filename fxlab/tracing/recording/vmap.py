"""Calls of ``torch.vmap`` as nodes: what is mapped is a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_module import ensure_picklable
from fxlab.models.safe_code import protect
from fxlab.torch_private import pytree
from fxlab.tracing.recording.output_objects import output_argument


@dataclass(frozen=True, eq=False)
class Vmapped:
    """The target of a node that calls a graph under ``torch.vmap``."""

    graph_module: GraphModule
    """What is mapped; it holds no tensors, what it uses of the model is given to it."""
    in_dims: tuple[int | None, ...]
    """The mapped dimension of each argument."""
    out_dims: Any
    randomness: str

    @property
    def __name__(self) -> str:
        return "vmap"

    def __call__(self, *args: Any) -> Any:
        """Call the graph."""
        mapped = torch.vmap(self.graph_module, self.in_dims, self.out_dims, self.randomness)
        return mapped(*args)


class VmapBody:
    """The graph of a function that is being mapped.

    Parameters
    ----------
    function
        What ``torch.vmap`` was given.
    in_dims
        Its mapped dimensions, as they were given.
    args
        Its positional arguments.

    Attributes
    ----------
    graph : Graph
        What is recorded.
    given : list of torch.fx.Node or tensors
        What the graph is to be called with.
    """

    def __init__(self, function: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> None:
        self.graph = Graph()
        self.given: list[Any] = []
        self._function = function
        self._in_dims: list[int | None] = []
        leaves, structure = pytree.tree_flatten(args)
        dims = pytree._broadcast_to_and_flatten(in_dims, structure, is_leaf=lambda d: d is None)
        self._is_mapped = [dim is not None for dim in dims or ()]
        for leaf, dim in zip(leaves, dims or (), strict=True):
            if dim is not None:
                self.given.append(leaf)
                self._in_dims.append(dim)
        self._inherited: dict[Node, Node] = {}

    def run(
        self, bind: Callable[[torch.Tensor, Node], None], node_of: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Return the function to map, which records what the given one does.

        Parameters
        ----------
        bind
            Called with each mapped tensor and its placeholder.
        node_of
            Tensor or symbolic number -> its node in the graph.
        """

        def recorded(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves(args)
            for leaf, is_mapped in zip(leaves, self._is_mapped, strict=True):
                if is_mapped:
                    bind(leaf, self._placeholder("x"))
            result = self._function(*args, **kwargs)
            self.graph.output(output_argument(result, self.graph, node_of))
            return result

        return recorded

    def inherited(self, node: Node) -> Node:
        """Return the placeholder that stands for a node of the graph around this one."""
        if node not in self._inherited:
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                self._inherited[node] = self._placeholder(node.name)
            self.given.append(node)
            self._in_dims.append(None)
        return self._inherited[node]

    def _placeholder(self, name: str) -> Node:
        node = self.graph.placeholder(name)
        node.target = node.name  # which no other has
        return node

    def target(self, out_dims: Any, randomness: str) -> Vmapped:
        """Return the target of the node that calls the graph."""
        module = GraphModule(nn.Module(), protect(self.graph), class_name="Vmapped")
        ensure_picklable(module)
        return Vmapped(module, tuple(self._in_dims), out_dims, randomness)
