"""Bodies, the graphs that nodes of another graph call, as branches of a ``cond``: passes and runs ask."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.fx import GraphModule, Node

from fxlab.base.torch_private import HigherOrderOperator, pytree
from fxlab.operators.node_info import attribute_at

T = TypeVar("T")

UNFOLDED = "fxlab.unfolded"
"""The key of ``graph_module.meta`` which says that the bodies are nodes of the graph itself."""


@dataclass(frozen=True)
class Body:
    """A graph that a node calls."""

    path: str
    """The attribute of the outer graph module that holds it."""
    module: GraphModule
    reading: Node | None
    """The ``get_attr`` node that passes it to the call; ``None`` for a module that is called."""


def bodies_called(node: Node, graph_module: GraphModule) -> list[Body]:
    """Return the bodies that a node calls, a higher-order operator or ``call_module``, in argument order."""
    if node.op == "call_module":
        called = attribute_at(graph_module, str(node.target), None)
        return [Body(str(node.target), called, None)] if isinstance(called, GraphModule) else []
    if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
        return []
    readings = [value for value in node.all_input_nodes if value.op == "get_attr"]
    found = [(value, attribute_at(graph_module, str(value.target), None)) for value in readings]
    return [Body(str(value.target), body, value) for value, body in found if isinstance(body, GraphModule)]


def all_bodies(graph_module: GraphModule) -> dict[str, GraphModule]:
    """Return the bodies in a graph module, also nested ones, by the prefix of names in them.

    The node ``mm`` of the body ``true_graph_0`` is called ``true_graph_0/mm``. Each body is listed once.
    """
    _, *parts = graph_module.modules()
    if graph_module.meta.get(UNFOLDED) or not any(isinstance(part, GraphModule) for part in parts):
        return {}
    return dict(_found_in(graph_module, "", {id(graph_module)}))


def _found_in(graph_module: GraphModule, prefix: str, seen: set[int]) -> Iterator[tuple[str, GraphModule]]:
    for node in graph_module.graph.nodes:
        for body in bodies_called(node, graph_module):
            if id(body.module) not in seen:
                seen.add(id(body.module))
                inner = f"{prefix}{body.path}/"
                yield inner, body.module
                yield from _found_in(body.module, inner, seen)


def graphs_of(graph_module: GraphModule) -> dict[str, GraphModule]:
    """Return a graph module under an empty prefix, and :func:`all_bodies` after it."""
    return {"": graph_module, **all_bodies(graph_module)}


def run_under(mode: AbstractContextManager[Any], arguments: T) -> T:
    """Return the arguments of a higher-order operator with bodies that run under a mode.

    Torch turns a dispatch mode off while the mode calls an operator.
    """

    def under(body: GraphModule) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            with mode:
                return body(*args, **kwargs)

        return called

    result: T = pytree.tree_map_only(GraphModule, under, arguments)
    return result
