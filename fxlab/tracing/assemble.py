"""A graph module of a recorded graph, around the model's own modules and parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.models.graph_module import ensure_picklable
from fxlab.tracing.model_code.attributes import attribute_of


def assemble(model: nn.Module, graph: Graph, constants: Mapping[str, torch.Tensor]) -> GraphModule:
    """Return a graph module that holds what a graph uses of a model.

    Modules, parameters and buffers are the model's own objects, at the same paths and in the same order; the
    modules that only hold others are empty ones in their place.

    Parameters
    ----------
    model
        The recorded model.
    graph
        Its graph.
    constants
        Tensors that the graph uses and the model does not have, by name.
    """
    result = GraphModule(nn.Module(), Graph(), class_name=type(model).__name__)
    result.train(model.training)
    used = {str(node.target) for node in graph.nodes if node.op in ("call_module", "get_attr")}
    for path, module in model.named_modules():
        if path in used:
            parent, name = _parent(result, model, path)
            parent.add_module(name, module)
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name)
                parent.register_parameter(last, parameter)
        for name, buffer in module.named_buffers(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name)
                persistent = last not in module._non_persistent_buffers_set
                parent.register_buffer(last, buffer, persistent=persistent)
    for name, constant in constants.items():
        if name in used:
            result.register_buffer(name, constant, persistent=False)
    result.graph = graph
    if (config := attribute_of(model, "config")) is not None:
        result.config = config
    ensure_picklable(result)
    return result


def _parent(result: GraphModule, model: nn.Module, path: str) -> tuple[nn.Module, str]:
    """Return the module that holds a path, made where there is none, and the last name of the path."""
    *names, last = path.split(".")
    holder: nn.Module = result
    origin = model
    for name in names:
        origin = origin.get_submodule(name)
        if not hasattr(holder, name):
            holder.add_module(name, nn.Module())
            holder.get_submodule(name).train(origin.training)
        holder = holder.get_submodule(name)
    return holder, last
