"""Tensors of the model that a call passes to its bodies, the same in each run.

``torch.export`` and Dynamo lift the weights that a body uses: the graph around reads them, and the call
passes them on. Other inputs of a loop's body are new each time.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.models.graph_modules.bodies import bodies_called
from fxlab.operators.node_info import attribute_at

_OPERANDS: dict[str, int | slice] = {
    **{"cond": 3, "while_loop": 3, "scan": 3, "map_impl": 2},
    **{"wrap": slice(1, None), "tag_activation_checkpoint": slice(1, None)},
    "wrap_with_set_grad_enabled": slice(2, None),
}
"""The places of arguments that are the same for all runs of a body, as its last inputs."""


@dataclass(frozen=True)
class Passing:
    """A call, its bodies, and the tensors that it passes to them."""

    around: GraphModule
    """The module whose graph calls."""
    call: Node
    bodies: tuple[GraphModule, ...]
    readings: dict[Node, Node]
    """Inputs of the given body -> the ``get_attr`` nodes around it that they stand for."""
    counterparts: dict[Node, tuple[Node, ...]]
    """Inputs of the given body -> these inputs of each body."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """The operands that are the same for all runs."""
        return _operands(self.call)

    def arguments(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the call with other operands."""
        args: list[Any] = list(self.call.args)
        place = _OPERANDS[_name(self.call)]
        args[place] = list(operands) if isinstance(args[place], list) else operands
        return tuple(args)


def passing(body: GraphModule, around: GraphModule) -> Passing | None:
    """Return how tensors are passed to a body; ``None`` if unknown, or if they may vary."""
    if any(node.op == "call_module" or _reads_tensor(node, body) for node in body.graph.nodes):
        return None  # it has tensors of its own as well
    called = {node: bodies_called(node, around) for node in around.graph.nodes}
    times = Counter(each.module for bodies in called.values() for each in bodies)
    calls = [node for node, bodies in called.items() if body in [each.module for each in bodies]]
    if len(calls) != 1 or any(isinstance(value, Node) for value in calls[0].kwargs.values()):
        return None
    (call,) = calls
    operands, modules = _operands(call), tuple(each.module for each in called[call])
    inputs = [module.graph.find_nodes(op="placeholder")[-len(operands) :] for module in modules]
    readers = {user for each in called[call] if each.reading is not None for user in each.reading.users}
    is_whole = bool(operands) and all(len(found) == len(operands) for found in inputs)
    if not is_whole or readers != {call} or any(times[module] > 1 for module in modules):
        return None
    counterparts = {each[modules.index(body)]: each for each in zip(*inputs, strict=True)}
    given = zip(counterparts, operands, strict=True)
    readings = {node: value for node, value in given if _reads_tensor(value, around)}
    return Passing(around, call, modules, readings, counterparts)


def _operands(call: Node) -> tuple[Any, ...]:
    place = _OPERANDS.get(_name(call), len(call.args))
    given = call.args[place] if isinstance(place, slice) or place < len(call.args) else None
    return tuple(given) if isinstance(given, tuple | list) else ()


def _name(call: Node) -> str:
    return str(getattr(call.target, "__name__", ""))


def _reads_tensor(node: Any, graph_module: GraphModule) -> bool:
    if not isinstance(node, Node) or node.op != "get_attr":
        return False
    return isinstance(attribute_at(graph_module, str(node.target), None), torch.Tensor)
