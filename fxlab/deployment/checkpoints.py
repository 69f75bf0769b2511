"""Activation checkpoints in a graph of Dynamo: regions that are computed again in backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from fxlab.models.graph_module import share_tensors_copy


def with_checkpoints(graph_module: GraphModule) -> GraphModule:
    """Return a graph whose checkpoints save memory, which Dynamo's marks of them do not by themselves.

    The graph that is given is not changed.
    """
    operator = torch.ops.higher_order.tag_activation_checkpoint

    def marks(module: Any) -> list[Any]:
        return module.graph.find_nodes(op="call_function", target=operator)  # type: ignore[no-any-return]

    if not any(marks(module) for module in graph_module.modules() if isinstance(module, GraphModule)):
        return graph_module
    result = share_tensors_copy(graph_module)
    for module in result.modules():
        if isinstance(module, GraphModule) and (found := marks(module)):
            for node in found:
                node.target = checkpoint
            module.recompile()
    return result
