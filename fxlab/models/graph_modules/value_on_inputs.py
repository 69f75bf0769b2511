"""Values of a plain graph on the inputs of its session, for conditions that a person writes."""

from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.torch_private import FakeTensorMode, pytree
from fxlab.models.graph_modules.graph_module import INPUTS
from fxlab.models.state.model_state import state_kept


def value_on_inputs(graph_module: GraphModule, node: Node) -> Any:
    """Return the fake value of a node on the inputs that were noted; ``None`` if it is not known."""
    if graph_module not in INPUTS:
        return None
    arguments, values = INPUTS[graph_module]
    if node.name not in values:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        interpreter = Interpreter(graph_module)
        with mode, torch.no_grad(), state_kept(graph_module):
            interpreter.args_iter = iter(pytree.tree_map_only(partial, lambda made: made(), arguments))
            for each in graph_module.graph.nodes:
                interpreter.env[each] = values[each.name] = _value(interpreter, each)
    return values[node.name]


def _value(interpreter: Interpreter, node: Node) -> Any:
    if node.op == "output" or any(interpreter.env[value] is None for value in node.all_input_nodes):
        return None
    try:
        return interpreter.run_node(node)
    except Exception:  # its shape depends on data, or it raises
        return None
