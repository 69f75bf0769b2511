"""What a table says of a node."""

from typing import Any

from torch.fx import GraphModule, Node
from torch.nn import Module, Parameter

from fxlab.values.tensors import known_number


def target_text(node: Node) -> str:
    """Return the target as people read it: a path, or a function's name with its module."""
    return node._pretty_print_target(node.target)


def module_path(node: Node) -> str:
    """Return the path of the module that a node belongs to, ``""`` if that is not known."""
    stack = node.meta.get("nn_module_stack")
    if stack:
        return str(list(stack.values())[-1][0])
    return str(node.target) if node.op == "call_module" else ""


def shape_and_dtype(node: Node) -> tuple[tuple[Any, ...] | None, str | None]:
    """Return what the graph knows of a node's result; sizes are those of the run that was traced."""
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    if value is None or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None, None
    return tuple(map(known_number, value.shape)), dtype_name(value.dtype)


def dtype_name(dtype: Any) -> str:
    """Return a dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def parameter_count(node: Node, graph_module: GraphModule, modules: dict[str, Module]) -> int:
    """Return how many numbers in parameters a node holds. ``modules`` are those of the graph module."""
    return _numbers(parameters_of(node, graph_module, modules))


def parameters_of(node: Node, graph_module: Module, modules: dict[str, Module]) -> list[Parameter]:
    """Return the parameters that a node holds, each once."""
    if node.op == "call_module" and node.target in modules:
        return list(modules[str(node.target)].parameters())
    if node.op == "get_attr":
        path, _, name = str(node.target).rpartition(".")
        value = getattr(modules.get(path, graph_module), name, None)
        return [value] if isinstance(value, Parameter) else []
    return []


def parameter_counts(graph_module: GraphModule) -> dict[Node, int]:
    """Return how many numbers in parameters each node is the first to use, so that their sum is right."""
    modules, counted = dict(graph_module.named_modules()), set[int]()
    counts = {}
    for node in graph_module.graph.nodes:
        new = [p for p in parameters_of(node, graph_module, modules) if id(p) not in counted]
        counted.update(map(id, new))
        counts[node] = _numbers(new)
    return counts


def _numbers(parameters: list[Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
