"""The last step of a trace (``symbolic_trace.py``): a graph module around the model's own modules."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.models.graph_modules.generated_code import protect
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.names import free_paths
from fxlab.models.graph_modules.own_modules import Container
from fxlab.tracing.model_code.given_model import attribute_of


def assemble(
    model: nn.Module, graph: Graph, constants: Mapping[str, torch.Tensor], branches: Mapping[str, GraphModule]
) -> GraphModule:
    """Return a graph module that holds the parts of a model that a graph uses.

    Modules, parameters and buffers are the model's own objects, at the same paths and in the same order;
    modules that only hold others are replaced by empty ones. A name that graph modules use themselves, such
    as ``graph``, becomes ``graph_1``. ``constants``: tensors that the graph uses and the model does not have,
    by name. ``branches``: graphs that nodes of the graph call, by name.
    """
    result = GraphModule(nn.Module(), Graph(), class_name=type(model).__name__)
    result.train(model.training)
    readers = [node for node in graph.nodes if node.op in ("call_module", "get_attr")]
    used = {str(node.target) for node in readers}
    paths = free_paths(used)
    for path, module in model.named_modules():
        if path in used:
            parent, name = _parent(result, model, path, paths[path])
            parent.add_module(name, module)
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name, paths[name])
                parent.register_parameter(last, parameter)
        for name, buffer in module.named_buffers(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name, paths[name])
                persistent = name.rpartition(".")[2] not in module._non_persistent_buffers_set
                parent.register_buffer(last, buffer, persistent=persistent)
    for name, constant in constants.items():
        if name in used:
            result.register_buffer(name, constant, persistent=False)
    for name, branch in branches.items():
        if name in used:
            result.add_module(name, branch)
    for node in readers:
        if (path := paths[str(node.target)]) != node.target:
            node.target = path
    result.graph = protect(graph)
    if (config := attribute_of(model, "config")) is not None:
        result.config = config
    ensure_picklable(result)
    return result


def _parent(result: GraphModule, model: nn.Module, path: str, found: str) -> tuple[nn.Module, str]:
    """Return the module that holds the value at a path, made if there is none, and the value's name in it."""
    holder: nn.Module = result
    origin: nn.Module | None = model
    *parents, last = found.split(".")
    for name, original in zip(parents, path.split("."), strict=False):
        origin = origin._modules[original] if origin is not None else None
        if name not in holder._modules:
            holder.add_module(name, Container().train(origin is not None and origin.training))
        holder = holder.get_submodule(name)
    return holder, last
