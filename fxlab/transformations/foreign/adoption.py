"""Making a graph module what another is, and leaving alone what is the same in both."""

from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.models.naming import have_one_naming, share_naming
from fxlab.transformations.signature import digest
from fxlab.values.tensors import same_bits

_TENSORS = ("_parameters", "_buffers")


def adopt(graph_module: GraphModule, other: GraphModule) -> None:
    """Make a graph module what another is that was made of it.

    Parameters and modules that are the same in both, bit for bit, stay the very objects that they were; so
    do the metadata of nodes that the other graph has under the same name and has lost them.

    Parameters
    ----------
    graph_module
        The module that changes.
    other
        What it becomes; this module is of no use afterwards.
    """
    _share_tensors(graph_module, other)
    metadata = {node.name: node.meta for node in graph_module.graph.nodes}
    for node in other.graph.nodes:
        node.meta = {**metadata.get(node.name, {}), **node.meta}
    for name in _TENSORS:
        vars(graph_module)[name] = vars(other)[name]
    _put_children(graph_module, other)
    for name, value in vars(other).items():
        if name == "training" or name not in vars(graph_module):
            vars(graph_module)[name] = value
    graph_module.graph = other.graph
    if have_one_naming(graph_module, other) is False:
        share_naming(other, graph_module)


def _share_tensors(ours: GraphModule, theirs: GraphModule) -> None:
    """Replace what is equal to what stands at the same path by that, if ties between tensors remain."""
    originals, partner_of = _tensors_by_path(ours), dict[int, torch.Tensor]()
    taken: dict[int, int] = {}
    for path, tensor in _tensors_by_path(theirs).items():
        original = originals.get(path)
        if original is None or type(original) is not type(tensor) or not same_bits(original, tensor):
            continue
        if taken.setdefault(id(original), id(tensor)) == id(tensor):
            partner_of.setdefault(id(tensor), original)
    for module in theirs.modules():
        for holder in (vars(module)[name] for name in _TENSORS):
            holder.update({name: partner_of.get(id(value), value) for name, value in holder.items()})


def _tensors_by_path(module: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _put_children(ours: nn.Module, theirs: nn.Module) -> None:
    children = {name: _kept(ours._modules.get(name), child) for name, child in theirs._modules.items()}
    ours._modules.clear()
    ours._modules.update(children)


def _kept(ours: nn.Module | None, theirs: nn.Module | None) -> nn.Module | None:
    """Return our module where theirs is its equal, and theirs with our modules inside where it is not."""
    if ours is None or theirs is None or ours is theirs:
        return theirs
    if type(ours) is type(theirs) and _state(ours) == _state(theirs):
        _put_children(ours, theirs)
        return ours
    for name, child in theirs._modules.items():
        theirs._modules[name] = _kept(ours._modules.get(name), child)
    return theirs


def _state(module: nn.Module) -> list[Any]:
    """Return all that a module is, but its children."""
    tensors = [[(name, id(value)) for name, value in vars(module)[kind].items()] for kind in _TENSORS]
    others = {name: value for name, value in vars(module).items() if name not in (*_TENSORS, "_modules")}
    return [tensors, digest(others)]
