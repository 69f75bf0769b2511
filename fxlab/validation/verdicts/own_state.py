"""Copies of a graph module with their own state, so that runs in step do not see each other's writes."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.models.graph_module import share_tensors_copy
from fxlab.models.model_state import memory_of
from fxlab.node_info import attribute_at
from fxlab.transformations.analysis.aliasing_and_writes import Writes, keeps_state


def with_own_state(module: GraphModule) -> GraphModule:
    """Return a copy of a module with its own copies of what a run may write; others are shared.

    A module that no run can change is returned as it is. What may be written is known from the graph: what
    is read by ``get_attr`` and written in place, batch norms in training, embeddings with a ``max_norm``, and
    all that modules of other libraries, or with hooks, hold.
    """
    keepers = [part for part in _called(module) if any(map(_may_keep_state, part.modules()))]
    written = {memory_of(tensor) for tensor in _written_attributes(module)}
    written |= {memory_of(tensor) for part in keepers for tensor in (*part.parameters(), *part.buffers())}
    if not keepers and not written:
        return module
    return share_tensors_copy(module, own=lambda tensor: memory_of(tensor) in written)


def _called(module: GraphModule) -> Iterator[nn.Module]:
    for node in module.graph.find_nodes(op="call_module"):
        yield module.get_submodule(str(node.target))


def _written_attributes(module: GraphModule) -> Iterator[torch.Tensor]:
    nodes = module.graph.find_nodes(op="get_attr")
    writes = Writes(module) if nodes else None
    for node in nodes:
        value = attribute_at(module, str(node.target))
        if isinstance(value, torch.Tensor) and writes is not None and writes.is_written(node):
            yield value


def _may_keep_state(module: nn.Module) -> bool:
    return bool(
        not type(module).__module__.startswith("torch.")
        or module._forward_hooks
        or module._forward_pre_hooks
        or keeps_state(module)
    )
