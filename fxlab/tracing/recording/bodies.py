"""Graphs of functions that a model passes to torch, recorded inside its own graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.base.torch_private import pytree
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.safe_code import protect
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes


class RecordedBody:
    """The graph of a function while it runs; it receives the values that it uses of the graph around it.

    ``graph``: the graph that is recorded. ``given``: the values to call it with. ``branches``: the graphs of
    branches inside, by the name that ``get_attr`` nodes know them by. ``sizes``: makes its nodes for symbolic
    numbers, once there are any.
    """

    has_values = False
    """Whether its tensors are plain tensors, and not wrappers that torch puts in their place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.graph = Graph()
        self.given: list[Any] = []
        self.branches: dict[str, GraphModule] = {}
        self.sizes: SizeNodes | None = None
        self._inherited: dict[Node, Node] = {}

    def inputs(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments of the function that are inputs of the graph."""
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def recorded(
        self, bind: Callable[[torch.Tensor, Node], None], node_of: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Return a function that records the calls of the given one, with its results as the graph's.

        ``bind``: called with each input and its placeholder. ``node_of``: tensor or symbolic number -> its
        node in the graph.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            for leaf in self.inputs(pytree.tree_leaves((args, kwargs))):
                bind(leaf, self._placeholder("x"))
            result = self._function(*args, **kwargs)
            self.graph.output(output_argument(result, self.graph, node_of))
            return result

        return call

    def inherited(self, node: Node) -> Node:
        """Return the placeholder that stands for a node of the graph around this one."""
        if node not in self._inherited:
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                self._inherited[node] = self._placeholder(node.name)
            if self.has_values and "val" in node.meta:
                self._inherited[node].meta["val"] = node.meta["val"]
            self.given.append(node)
        return self._inherited[node]

    def _placeholder(self, name: str) -> Node:
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


class OperatorBody(RecordedBody):
    """A function that is an argument of an operator of torch, such as a branch of ``torch.cond``.

    ``refused``: makes the error that says why it is refused. ``given``: the values that another function of
    the same call uses of the graph around it; this one receives them as well. ``is_condition``: whether it
    computes the condition of a loop.
    """

    has_values = True

    def __init__(
        self,
        refused: Callable[[str], Exception],
        function: Callable[..., Any],
        given: list[Node],
        is_condition: bool,
    ) -> None:
        super().__init__(function)
        self._refused, self._shared, self._is_condition = refused, given, is_condition

    def run(
        self, arguments: Sequence[Any], bind: Callable[[Any, Node], None], node_of: Callable[[Any], Any]
    ) -> tuple[list[Any], Any]:
        """Call the function, end the graph with its results, and return these and their structure.

        ``arguments``: tensors, and symbolic numbers if it may give numbers. ``bind``: called with each
        of them and its placeholder. ``node_of``: tensor or symbolic number -> its node.
        """
        takes_numbers = any(isinstance(argument, torch.SymInt) for argument in arguments)
        for argument in arguments:
            bind(argument, self._placeholder("x"))
        for node in self._shared:
            self.inherited(node)
        leaves, structure = pytree.tree_flatten(self._function(*arguments))
        numbers = (torch.SymBool if self._is_condition else (int, torch.SymInt)) if takes_numbers else ()
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not all(isinstance(leaf, (torch.Tensor, numbers)) for leaf in leaves):
            raise self._refused("gives something that is no tensor")
        kinds = [(leaf.dtype, leaf.dim()) for leaf in tensors]
        if self._is_condition and (len(leaves) != 1 or kinds not in ([], [(torch.bool, 0)])):
            raise self._refused("gives no condition, which is one number of dtype bool")
        nodes = tuple(leaf if type(leaf) is int else node_of(leaf) for leaf in leaves)
        given = [node_of(tensor) for tensor in tensors]
        if any(node.op == "placeholder" for node in given) or len({*given}) < len(given):
            raise self._refused("gives a tensor that is there already, and no copy")
        self.graph.output(nodes[0] if self._is_condition else nodes)
        return leaves, structure
