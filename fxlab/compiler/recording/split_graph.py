"""A split joint graph as one again that runs forward and backward: the recorder judges the split by it."""

from typing import Any

from torch.fx import Graph, Node

from fxlab.compiler.recording.snapshot import Snapshot
from fxlab.models.graph_modules.parts import graph_module_of
from fxlab.operators.node_info import outputs_of

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
    """Copy the nodes of a part into a graph; one whose call is another in the joint graph gets a suffix.

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
