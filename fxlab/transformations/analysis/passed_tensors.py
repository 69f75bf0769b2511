"""Tensors of the model that a call passes to its bodies, the same in each run.

``torch.export`` and Dynamo lift the weights that a body uses: the graph around reads them, and the call
passes them on. Other inputs of a loop's body are new each time.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.models.bodies import bodies_called
from fxlab.node_info import attribute_at

_CONSTANTS_AT = {"cond": 3, "while_loop": 3, "scan": 3, "map_impl": 2}
"""Operators whose argument at this index is the same for all runs of a body, as its last inputs."""
_CONSTANTS_FROM = {"wrap": 1, "tag_activation_checkpoint": 1, "wrap_with_set_grad_enabled": 2}
"""Operators whose arguments from this index on are the inputs of their body."""


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
    """These inputs -> their counterparts in the other bodies."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """The operands that are the same for all runs."""
        return _operands(self.call) or ()

    def arguments(self, operands: list[Any]) -> tuple[Any, ...]:
        """Return the arguments of the call with other operands."""
        args, name = self.call.args, _name(self.call)
        if (place := _CONSTANTS_AT.get(name)) is None:
            return (*args[: _CONSTANTS_FROM[name]], *operands)
        container = list if isinstance(args[place], list) else tuple
        return (*args[:place], container(operands), *args[place + 1 :])


def passing(body: GraphModule, around: GraphModule) -> Passing | None:
    """Return how tensors are passed to a body; ``None`` if unknown, or if they may vary."""
    if any(node.op == "call_module" or _reads_tensor(node, body) for node in body.graph.nodes):
        return None  # it has tensors of its own as well
    called = {node: bodies_called(node, around) for node in around.graph.nodes}
    calls = [node for node, bodies in called.items() if any(each.module is body for each in bodies)]
    is_by_name = any(isinstance(value, Node) for call in calls for value in call.kwargs.values())
    if len(calls) != 1 or is_by_name or (operands := _operands(calls[0])) is None:
        return None
    (call,) = calls
    modules = tuple(each.module for each in called[call])
    readers = {user for each in called[call] if each.reading is not None for user in each.reading.users}
    others = {id(each.module) for node, bodies in called.items() if node is not call for each in bodies}
    inputs = [module.graph.find_nodes(op="placeholder")[-len(operands) :] for module in modules]
    is_whole = all(len(found) == len(operands) for found in inputs)
    if readers != {call} or len(set(map(id, modules))) < len(modules) or not operands or not is_whole:
        return None
    if not others.isdisjoint(map(id, modules)):
        return None
    own = modules.index(body)
    given = dict(zip(inputs[own], operands, strict=True))
    readings = {node: value for node, value in given.items() if _reads_tensor(value, around)}
    rest = [found for place, found in enumerate(inputs) if place != own]
    others_of = list(zip(*rest, strict=True)) if rest else [()] * len(operands)
    counterparts = dict(zip(inputs[own], others_of, strict=True))
    return Passing(around, call, modules, readings, counterparts)


def _operands(call: Node) -> tuple[Any, ...] | None:
    name = _name(call)
    if name in _CONSTANTS_FROM:
        return call.args[_CONSTANTS_FROM[name] :]
    place = _CONSTANTS_AT.get(name, len(call.args))
    given = call.args[place] if place < len(call.args) else None
    return tuple(given) if isinstance(given, tuple | list) else None


def _name(call: Node) -> str:
    return str(getattr(call.target, "__name__", ""))


def _reads_tensor(node: Any, graph_module: GraphModule) -> bool:
    if not isinstance(node, Node) or node.op != "get_attr":
        return False
    return isinstance(attribute_at(graph_module, str(node.target), None), torch.Tensor)
