"""The tensors that a module holds, and whether two of them are the same memory."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.torch_private import is_of_transform
from fxlab.operators.node_info import attribute_at

CALLS_A_MODULE = "fxlab.calls_a_module"
"""The entry of ``meta`` of a graph that is a single call of a module under the name ``model``."""
_OF_COMPILE = "_orig_mod."


def plain_name(module: nn.Module, name: str) -> str:
    """Return the name of a tensor as the model has it by itself, called by a graph or compiled or not."""
    if getattr(module, "meta", {}).get(CALLS_A_MODULE):
        name = name.removeprefix("model.")
    return name.replace(_OF_COMPILE, "")


def tensors_of(module: GraphModule) -> Iterator[torch.Tensor]:
    """Yield the parameters, buffers and constants of a module."""
    yield from module.parameters()
    yield from module.buffers()
    for node in module.graph.find_nodes(op="get_attr"):
        value = attribute_at(module, str(node.target))
        if isinstance(value, torch.Tensor):
            yield value


def place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a key that is equal for two tensors with the same memory and layout."""
    if is_of_transform(tensor):  # torch.func hides its memory
        return (id(tensor),)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
