"""The function that a backend returns for a captured graph: it runs the graph, not torch's print of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.graph_modules.safe_code import protect


def runnable(graph_module: GraphModule) -> Callable[..., Any]:
    """Return the function that runs a graph, by code that torch's generator has no part in.

    Dynamo marks checkpoints; they save memory only if they are called.
    """
    result = share_tensors_copy(graph_module)
    for module in result.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.find_nodes(
                op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint
            ):
                node.target = checkpoint
            protect(module.graph, always=True)
            module.recompile()
            # Dynamo's modules write their code when they are called, which costs each call.
            assert module.code
    return result.forward
