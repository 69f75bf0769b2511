"""A graph at one moment of a compile, and the parts of a joint graph as one again."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_modules.input_order import after_inputs
from fxlab.models.graph_modules.parts import graph_module_of
from fxlab.operators.node_info import attribute_at, outputs_of
from fxlab.values.tensors import version_of


class State:
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
        if not isinstance(other, State) or self._held != other._held:
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
class Made:
    """The origin of a node that a pass has made: the nodes it replaces, and its number there."""

    pass_: str
    anchor: str
    place: int
    meta: Mapping[str, Any]
    """Of the replaced nodes: their origin, for a node that does not tell its own."""


class Snapshot:
    """A copy of a graph that can run, in the dialect ``torch`` of Dynamo or ``aten`` of AOTAutograd."""

    def __init__(self, graph_module: GraphModule, dialect: str, made: Mapping[str, Made]) -> None:
        self.dialect, self.made = dialect, made
        self.state = State(graph_module)
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


_FORWARD, _BACKWARD = "_of_forward", "_of_backward"


def joined(joint: Snapshot, forward: Snapshot, backward: Snapshot) -> Snapshot | None:
    """Return a graph that runs a forward graph and, on its saved values, the backward graph, or ``None``."""
    graph = Graph()
    inputs: dict[str, Node] = {}
    for node in joint.graph.find_nodes(op="placeholder"):
        inputs[node.name] = graph.node_copy(node)
    saved, gradients = (outputs_of(one.graph) for one in (forward, backward))
    known = {node.name: _call(node) for node in joint.graph.nodes}
    copies = _copied(graph, forward.graph, inputs, known, _FORWARD)
    if copies is None:
        return None
    read = {node.name: copies[node] for node in saved if isinstance(node, Node)}
    later = _copied(graph, backward.graph, {**inputs, **read}, known, _BACKWARD)
    outputs = len(outputs_of(joint.graph)) - len(gradients)
    if later is None or not 0 <= outputs <= len(saved):
        return None
    values = [_of(value, copies) for value in saved[:outputs]] + [_of(value, later) for value in gradients]
    graph.output(tuple(values)).meta.update(joint.graph.output_node().meta)
    held = {**backward.held, **forward.held}
    return Snapshot(graph_module_of(held, graph, "Joined"), joint.dialect, {**forward.made, **backward.made})


def _copied(
    graph: Graph, part: Graph, given: dict[str, Node], known: dict[str, tuple[Any, ...]], suffix: str
) -> dict[Node, Node] | None:
    """Copy the nodes of a part into a graph; each that is not the call of its name before gets a suffix.

    A value may be computed in both parts, and the compiler numbers nodes again.
    """
    taken = {node.name for node in graph.nodes}
    copies: dict[Node, Node] = {}
    for node in part.nodes:
        if node.op == "placeholder":
            if node.name not in given:
                return None
            copies[node] = given[node.name]
        elif node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node]._rename(f"{node.name}{suffix}")
            if suffix == _BACKWARD:  # values of the forward graph may be computed again here
                copies[node].meta["autograd_backward"] = True
            if node.name not in taken and _call(copies[node]) == known.get(node.name):
                copies[node].name = node.name
    return copies


def _call(node: Node) -> tuple[Any, ...]:
    return node.op, node.target, str(node.args), str(node.kwargs)


def _of(value: Any, copies: dict[Node, Node]) -> Any:
    return copies[value] if isinstance(value, Node) else value
