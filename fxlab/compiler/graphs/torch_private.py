"""Private facts of torch about nodes of compiled graphs: origins and descriptors."""

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node


def values_of(graph_module: GraphModule) -> tuple[Any, ...] | None:
    """Return the values that Dynamo captures a graph with; ``None`` where it does not keep them."""
    found = []
    for node in graph_module.graph.find_nodes(op="placeholder"):
        example = getattr(node.meta.get("grapharg"), "example", None)
        if example is None:
            return None
        found.append(example)
    return tuple(found)


def inductor_lowering(target: Any) -> bool:
    """Tell whether the target of a node is a lowering of Inductor, which exists in generated code alone."""
    return hasattr(target, "_inductor_lowering_function")


def lost_origins(graph: Graph) -> str:
    """Return a remark if no node of a graph of ATen operators tells its origin; else empty words."""
    calls = [node for node in graph.nodes if node.op.startswith("call")]
    if not calls or any(map(root_names, calls)):
        return ""
    return (
        "Nodes of ATen operators have neither modules nor names of Dynamo's nodes: this torch "
        f"({torch.__version__}) does not note what it made them of."
    )


def root_names(node: Node) -> tuple[str, ...]:
    """Return the nodes of Dynamo's graph that a node was made from, by name."""
    names: dict[str, None] = {}
    for source in node.meta.get("from_node") or ():
        while getattr(source, "from_node", None):
            # Each rewrite adds a level: the innermost is Dynamo's node.
            source = source.from_node[0]
        if getattr(source, "node_info", None) is not None:
            names[str(source.name)] = None
    return tuple(names)


def input_index(descriptor: Any) -> int | None:
    """Return which placeholder of Dynamo's graph one of AOTAutograd's is, as its descriptor says."""
    return descriptor.idx if type(descriptor).__name__ == "PlainAOTInput" else None


def held_name(descriptor: Any) -> str | None:
    """Return the name in Dynamo's graph of the parameter or buffer behind a placeholder of AOTAutograd."""
    is_held = type(descriptor).__name__ in ("ParamAOTInput", "BufferAOTInput")
    return str(descriptor.target) if is_held else None


def output_index(descriptor: Any) -> int | None:
    """Return which output of Dynamo's graph one of AOTAutograd's is, as its descriptor says."""
    return descriptor.idx if type(descriptor).__name__ == "PlainAOTOutput" else None


def tangent_index(descriptor: Any) -> int | None:
    """Return of which output of Dynamo's graph a placeholder of AOTAutograd's is the gradient."""
    is_tangent = type(descriptor).__name__ == "TangentAOTInput"
    return output_index(descriptor.output) if is_tangent else None


def gradient_of(descriptor: Any) -> Any:
    """Return the descriptor of the input whose gradient an output of AOTAutograd's is; else ``None``."""
    return descriptor.grad_of if type(descriptor).__name__ == "GradAOTOutput" else None
