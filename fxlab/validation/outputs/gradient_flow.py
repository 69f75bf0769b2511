"""Outputs from which gradients would flow, told from a graph that is run without them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fxlab.node_info import attribute_at
from fxlab.operators import describes, operator_of, returns_number
from fxlab.values.tensors import tensors_by_path

_CUTS = ("detach", "detach_", "detach_copy")
_SWITCHES = ("_set_grad_enabled", "set_grad_enabled")


def gradients_flow(graph_module: GraphModule, arguments: Mapping[str, Any]) -> dict[str, bool]:
    """Tell from which outputs gradients would flow, by path; outputs of which it is not known are left out.

    Examples
    --------
    >>> from torch import nn
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(2, 2)
    ...     def forward(self, x):
    ...         return self.layer(x), self.layer(x).detach() + x
    >>> gradients_flow(torch.fx.symbolic_trace(Model()), {"x": torch.ones(2)})
    {'0': True, '1': False}
    """
    flows: dict[Node, bool | None] = {}
    is_on = True
    for node in graph_module.graph.nodes:
        if node.op == "output":
            # In place of each node, a vector that tells; what else is returned is none.
            told: Any = map_arg(node.args[0], lambda value: torch.tensor(_TOLD[flows[value]], device="cpu"))
            found = {path: vector.tolist() for path, vector in tensors_by_path(told).items() if vector.dim()}
            return {path: bool(*vector) for path, vector in found.items() if vector}
        if getattr(node.target, "__name__", "") in _SWITCHES:
            is_on = bool(node.args[0])
        is_cut = not is_on and node.op in ("call_function", "call_method", "call_module")
        flows[node] = False if is_cut else _flows(node, graph_module, arguments, flows)
    return {}


_TOLD: dict[bool | None, list[bool]] = {False: [False], True: [True], None: []}


def _flows(
    node: Node, graph_module: GraphModule, arguments: Mapping[str, Any], flows: Mapping[Node, bool | None]
) -> bool | None:
    """Tell whether gradients flow from what a node gives, ``None`` if that is not known."""
    if node.op == "placeholder":
        return _asks(arguments.get(str(node.target).lstrip("*")))
    if node.op == "get_attr":
        return _asks(attribute_at(graph_module, str(node.target), None))
    read = [flows[value] for value in node.all_input_nodes]
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        if not type(module).__module__.startswith("torch.nn.modules."):
            return None
        read.append(any(parameter.requires_grad for parameter in module.parameters()))
    else:
        operator = operator_of(node)
        if operator is None:
            return None
        takes_data = node.target is getattr and node.args[1:2] == ("data",)
        if operator.name in _CUTS or takes_data or describes(node) or returns_number(node):
            return False
    return True if True in read else None if None in read else False


def _asks(value: Any) -> bool:
    return any(tensor.requires_grad for tensor in tensors_by_path(value).values())
