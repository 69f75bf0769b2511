"""Makes a graph module equal to its copy that a foreign pass has changed; equal parts stay as they are."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.models.graph_modules.parts import have_one_naming, share_naming
from fxlab.transformations.journal.journal import KEY, Absent
from fxlab.transformations.journal.module_tree import join_path, parents_of
from fxlab.transformations.journal.name_order import in_order
from fxlab.transformations.journal.node_state import NodeState, changed_entries, same_argument
from fxlab.transformations.signature import digest
from fxlab.values.tensors import same_bits

OF_TORCH = {"_graph", "_code", "_lineno_map", "_prologue_start", "_modules", "meta", "shape_env"}
"""Attributes of a graph module that are no part of the model, or are compared separately."""
TENSORS = ("_parameters", "_buffers")


def adopt(graph_module: GraphModule, other: GraphModule, copies: Mapping[int, Any], *, is_copy: bool) -> None:
    """Turn a graph module into one that was made of a copy of it, which is unusable afterwards.

    Tensors, modules and attributes that are bit-identical in both stay the very same objects. ``copies``: the
    copies of its parts, by the ``id`` of each. Unless the other module ``is_copy``, parts that have the same
    path are compared as well, and nodes of one name keep metadata that it has lost.
    """
    adoption = _Adoption(graph_module, other, copies, by_path=not is_copy)
    adoption.share_tensors()
    children = {name: adoption.kept(name, child) for name, child in other._modules.items()}
    adoption.refer_to_originals()
    order = in_order(children, [*graph_module._modules])
    ours, theirs = vars(graph_module), vars(other)
    ours["_modules"].clear()
    ours["_modules"].update((name, children[name]) for name in order)
    ours |= {name: theirs[name] for name in TENSORS}
    for name in theirs.keys() - OF_TORCH:
        may_change = is_copy or name == "training" or name not in ours
        if may_change and not is_same(ours.get(name, Absent()), theirs[name]):
            ours[name] = theirs[name]
    for name in (ours.keys() - theirs.keys() - OF_TORCH) if is_copy else ():
        del ours[name]
    if not is_copy:
        metadata = {node.name: node.meta for node in graph_module.graph.nodes}
        for node in other.graph.nodes:
            node.meta = {**metadata.get(node.name, {}), **node.meta}
    _adopt_meta(graph_module.meta, other.meta, copies, is_copy=is_copy)
    if not _is_same_graph(graph_module.graph, other.graph):
        graph_module.graph = other.graph
    if have_one_naming(graph_module, other) is False:
        share_naming(other, graph_module)


def _adopt_meta(
    ours: dict[str, Any], theirs: dict[str, Any], copies: Mapping[int, Any], *, is_copy: bool
) -> None:
    """Take over metadata, but for the journal; copies of objects stay the originals, unless they are data."""
    objects = [value for value in ours.values() if id(value) in copies and not isinstance(value, dict | list)]
    originals = {id(copies[id(value)]): value for value in objects}
    found = {key: originals.get(id(value), value) for key, value in theirs.items()}
    for key in changed_entries(ours, found):
        if key in found and (key != KEY or key not in ours):
            ours[key] = found[key]
        elif key not in found and key != KEY and is_copy:
            del ours[key]


class _Adoption:
    """Finds the equal originals of parts of a changed module."""

    def __init__(
        self, graph_module: GraphModule, other: GraphModule, copies: Mapping[int, Any], *, by_path: bool
    ) -> None:
        paths = dict(graph_module.named_modules(remove_duplicate=False))
        held = {f"{path} {name}": v for path, m in paths.items() for name, v in tensors_in(m).items()}
        # Copies note their originals, also those outside of the tree, such as a module that a check asks.
        elsewhere = copies.get(id(copies), ())
        originals = [*paths.values(), *held.values(), *elsewhere]
        self._originals = {id(copies[id(each)]): each for each in originals if id(each) in copies}
        self._by_path: Mapping[str, Any] = paths | held if by_path else {}
        self._other = other
        graphs = graph_module.graph, other.graph
        self._called = {node.target for graph in graphs for node in graph.find_nodes(op="call_module")}
        self._paths = {id(module): path for path, module in other.named_modules()}
        self._taken: dict[int, int] = {}
        self._known: dict[int, Any] = {id(other): graph_module}
        self._new: list[nn.Module] = [other]

    def share_tensors(self) -> None:
        """Replace tensors that are equal to originals by these, if ties between tensors remain."""
        for path, module in self._other.named_modules(remove_duplicate=False):
            for name, tensor in tensors_in(module).items():
                if id(tensor) not in self._known:
                    self._known[id(tensor)] = self._shared(f"{path} {name}", tensor)
        for module in self._other.modules():
            for holder in _holders(module):
                holder.update({k: self._known[id(v)] for k, v in holder.items() if id(v) in self._known})

    def _shared(self, place: str, tensor: torch.Tensor) -> torch.Tensor:
        original = self._original(place, tensor)
        if type(original) is not type(tensor) or _strides(original) != _strides(tensor):
            return tensor
        if same_bits(original, tensor):
            return original if self._takes(original, tensor) else tensor
        if tensor.is_leaf and same_bits(original.detach(), tensor.detach()):  # only requires_grad has changed
            shared = original.detach()
            is_parameter = isinstance(tensor, nn.Parameter)
            return (nn.Parameter(shared) if is_parameter else shared).requires_grad_(tensor.requires_grad)
        return tensor

    def _original(self, place: str, part: Any) -> Any:
        return self._originals.get(id(part), self._by_path.get(place))

    def _takes(self, original: Any, part: Any) -> bool:
        """Tell whether an original stands for a part, and for no other one."""
        return self._taken.setdefault(id(original), id(part)) == id(part)

    def kept(self, path: str, module: nn.Module | None) -> nn.Module | None:
        """Return the equal original of a module, or the module with originals inside."""
        if module is None or id(module) in self._known:
            return None if module is None else self._known[id(module)]
        self._known[id(module)] = module  # while its attributes are compared, which may refer to it
        original = self._original(path, module)
        is_equal = (
            original is not None and self._is_same_module(original, module) and self._takes(original, module)
        )
        # The model holds the modules that a graph calls, so those get no other children.
        if is_equal and not self._called.isdisjoint((path, *parents_of(path))):
            is_equal = self._is_same(original._modules, module._modules)
        result: nn.Module = original if is_equal else module
        if not is_equal:
            self._new.append(module)
        self._known[id(module)] = result
        children = {name: self.kept(join_path(path, name), child) for name, child in module._modules.items()}
        order = in_order(children, [*result._modules])
        result._modules.clear()
        result._modules.update((name, children[name]) for name in order)
        return result

    def _is_same_module(self, a: nn.Module, b: nn.Module) -> bool:
        """Tell whether two modules are alike in all but their children."""
        skipped = {"_modules"}
        if isinstance(a, GraphModule) and isinstance(b, GraphModule):  # each has a class of its own
            skipped |= OF_TORCH
            if not _is_same_graph(a.graph, b.graph):
                return False
        elif type(a) is not type(b):
            return False
        ours, theirs = vars(a), vars(b)
        if ours.keys() - skipped != theirs.keys() - skipped:
            return False
        return all(self._is_same(ours[name], theirs[name]) for name in ours.keys() - skipped)

    def _is_same(self, ours: Any, theirs: Any) -> bool:
        """Tell whether an attribute is unchanged, if modules and tensors in it stand for originals."""
        if isinstance(theirs, nn.Module):
            path = self._paths.get(id(theirs))
            return (self._elsewhere(theirs) if path is None else self.kept(path, theirs)) is ours
        if isinstance(theirs, torch.Tensor):
            return self._known.setdefault(id(theirs), self._shared(" ", theirs)) is ours
        if type(ours) is not type(theirs) or type(theirs) not in (tuple, list, dict):
            return is_same(ours, theirs)
        if isinstance(theirs, dict):
            return list(ours) == list(theirs) and all(self._is_same(ours[key], theirs[key]) for key in theirs)
        return len(ours) == len(theirs) and all(map(self._is_same, ours, theirs))

    def _elsewhere(self, module: nn.Module) -> nn.Module:
        """Return the equal original of a module outside of the tree, else the module."""
        if id(module) not in self._known:
            self._known[id(module)] = module  # while it is compared
            original = self._originals.get(id(module))
            if (
                original is not None
                and self._is_same_module(original, module)
                and self._is_same(original._modules, module._modules)
            ):
                self._known[id(module)] = original
        found: nn.Module = self._known[id(module)]
        return found

    def refer_to_originals(self) -> None:
        """Point attributes of new modules, such as checks of modes, to the kept originals."""
        for module in self._new:
            attributes = vars(module)
            attributes |= {
                name: self._referring(value)
                for name, value in attributes.items()
                if name not in {*OF_TORCH, *TENSORS}
            }

    def _referring(self, value: Any) -> Any:
        if isinstance(value, nn.Module | torch.Tensor):
            return self._known.get(id(value), value)
        if type(value) in (tuple, list):
            return type(value)(map(self._referring, value))
        return {key: self._referring(each) for key, each in value.items()} if type(value) is dict else value


def tensors_in(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters, buffers and other tensors that a module holds, by name."""
    entries = (entry for holder in _holders(module) for entry in holder.items())
    return {name: value for name, value in entries if isinstance(value, torch.Tensor)}


def is_same(a: Any, b: Any) -> bool:
    """Tell whether an attribute is unchanged: the same objects, or equal copies of them."""
    if isinstance(a, torch.Tensor | nn.Module) or isinstance(b, torch.Tensor | nn.Module) or a is b:
        return a is b
    if isinstance(a, bool | int | float | str | tuple):
        return same_argument(a, b)
    if type(a) is type(b) and isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and digest(a) == digest(b)


def _holders(module: nn.Module) -> list[dict[str, Any]]:
    return [vars(module), *(vars(module)[name] for name in TENSORS)]


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout is torch.strided else ()


def _is_same_graph(a: Graph, b: Graph) -> bool:
    ours, theirs = ([NodeState.of(node) for node in graph.nodes] for graph in (a, b))
    return (
        len(ours) == len(theirs)
        and all(old.is_same(new) for old, new in zip(ours, theirs, strict=True))
        and digest(a._codegen) == digest(b._codegen)
    )
