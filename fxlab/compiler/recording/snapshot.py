"""A graph at one moment of a compile, as a copy that can run, and the passes that made its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.base.exchanged import cached_property
from fxlab.models.graph_modules.input_order import after_inputs
from fxlab.operators.node_info import attribute_at
from fxlab.values.tensors import version_of


class GraphState:
    """The state of a graph at a moment, by reference: its nodes, whose order does not count.

    Arguments of a node are never changed in place, so the same objects are the same arguments.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self._nodes = [(node, node.target, node.args, node.kwargs) for node in graph_module.graph.nodes]
        self._held = {
            str(node.target): _version(attribute_at(graph_module, str(node.target)))
            for node in graph_module.graph.find_nodes(op="get_attr")
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphState) or self._held != other._held:
            return False
        pairs = zip(self._nodes, other._nodes, strict=False)
        is_same = len(self._nodes) == len(other._nodes) and all(
            all(a is b for a, b in zip(ours, theirs, strict=True)) for ours, theirs in pairs
        )
        return is_same or self.words == other.words

    __hash__ = None  # type: ignore[assignment]

    def finish(self) -> None:
        """Release the nodes when the compile is over."""
        _ = self.words
        self._nodes = []

    @cached_property
    def words(self) -> dict[str, tuple[Any, str]]:
        """By the name of a node: its target and its arguments."""
        return {node.name: (target, f"{args} {kwargs}") for node, target, args, kwargs in self._nodes}


@dataclass(frozen=True)
class NodeOrigin:
    """The origin of a node that a pass has made: the nodes it replaces, and its number there."""

    pass_: str
    anchor: str
    place: int
    meta: Mapping[str, Any]
    """Of the replaced nodes: their origin, for a node that does not tell its own."""


class Snapshot:
    """A copy of a graph that can run, in the dialect ``torch`` of Dynamo or ``aten`` of AOTAutograd."""

    def __init__(self, graph_module: GraphModule, dialect: str, made: Mapping[str, NodeOrigin]) -> None:
        self.dialect, self.made = dialect, made
        self.state = GraphState(graph_module)
        self.graph = Graph()
        copies: dict[Node, Node] = {}
        # A pass may leave nodes in an order that does not run until a later one sorts them.
        for node in after_inputs(graph_module.graph.nodes, lambda node: node.all_input_nodes):
            copies[node] = self.graph.node_copy(node, copies.__getitem__)
            inherited = made[node.name].meta if node.name in made else {}
            copies[node].meta = {**inherited, **node.meta}
        self.held = {
            str(node.target): attribute_at(graph_module, str(node.target))
            for node in self.graph.nodes
            if node.op in ("get_attr", "call_module")
        }


def _version(value: Any) -> Any:
    return (id(value), version_of(value)) if isinstance(value, torch.Tensor) else id(value)
