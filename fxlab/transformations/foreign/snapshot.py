"""A graph module as it was, and what a function that knows nothing of fxlab has made of it.

A snapshot costs the graph and the module tree, and a copy of the tensors for as long as the function runs.
Whatever the function wrote in place, into a tensor or an attribute of a module, is then moved to a new tensor
or module, which takes the place of the one that was written; that one gets back what it had. So the
difference between before and after is made of references, and taking it back is putting references back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.transformations.journal.journal import Absent, AttributeChange, ModuleChange, NodeChange, Record
from fxlab.transformations.journal.module_fingerprint import ModulePrint
from fxlab.transformations.journal.module_tree import attributes_of, find_module, join_path
from fxlab.transformations.journal.node_state import NodeState, same_argument
from fxlab.transformations.signature import digest
from fxlab.values.lazy import LazyTensor
from fxlab.values.tensors import inner_tensors, same_bits

_OF_TORCH = {"_graph", "_code", "_lineno_map", "_prologue_start", "_modules", "meta", "shape_env"}
"""Attributes of a graph module that are no part of the model, or that are compared by themselves."""
_TENSORS = ("_parameters", "_buffers")


class Snapshot:
    """The state of a graph module.

    Parameters
    ----------
    graph_module
        The module.
    keep_values
        Whether to keep a copy of all tensors, for a function that may write into them.
    """

    def __init__(self, graph_module: GraphModule, *, keep_values: bool = True) -> None:
        self._graph_module = graph_module
        self._nodes = {node.name: NodeState.of(node) for node in graph_module.graph.nodes}
        self._codegen = graph_module.graph._codegen
        paths = dict(graph_module.named_modules(remove_duplicate=False))
        self._modules = paths
        self._attributes = {id(module): attributes_of(module) for module in paths.values()}
        held = {id(value): value for module in paths.values() for value in _tensors_in(module)}
        self._tensors = [_TensorState.of(tensor, keep_values) for tensor in held.values()]

    def put_values_back(self) -> None:
        """Put back what was written into tensors; graph and modules stay as they are."""
        for state in self._tensors:
            state.put_back()

    def difference(self, signature: str) -> Record | None:
        """Return what has changed since, in a form that can be taken back, or ``None`` if nothing has.

        What was written in place is moved to new tensors and modules on the way.
        """
        _Mover(self._attributes, self._tensors).move(self._graph_module)
        record = Record(signature, mode=self._graph_module.training, is_opaque=True)
        self._compare_root(record)
        self._compare_modules("", record)
        self._compare_nodes(record)
        return record if record.nodes or record.modules or record.attributes or record.order else None

    @property
    def children(self) -> dict[str, list[str]]:
        """The names of the children of each module, by its path, in order."""
        return {path: list(self._attributes[id(m)]["_modules"]) for path, m in self._modules.items()}

    def _compare_root(self, record: Record) -> None:
        root = self._graph_module
        before, now = self._attributes[id(root)], vars(root)
        for holder in ("", *_TENSORS):
            old, new = (attributes[holder] if holder else attributes for attributes in (before, now))
            names = [name for name in {**old, **new} if holder or name not in {*_OF_TORCH, *_TENSORS}]
            record.attributes += [
                AttributeChange(holder, name, old.get(name, Absent()), tuple(old) if holder else ())
                for name in names
                if name not in old or name not in new or not _is_same(old[name], new[name])
            ]
        if digest(root.graph._codegen) != digest(self._codegen):
            record.attributes.append(AttributeChange("graph", "_codegen", self._codegen))

    def _compare_modules(self, path: str, record: Record) -> None:
        """Note the modules below a path that others stand in for, where the one at the path still stands."""
        module = self._modules[path]
        before, now = self._attributes[id(module)]["_modules"], module._modules
        for name in {**before, **now}:
            old, new, at = before.get(name), now.get(name), join_path(path, name)
            if old is new:
                if old is not None:
                    self._compare_modules(at, record)
                continue
            originals = {} if old is None else {at: old}
            record.modules.append(ModuleChange(originals, at, _print_of_what_is_new(new, old), ()))

    def _compare_nodes(self, record: Record) -> None:
        graph = self._graph_module.graph
        now = {node.name: NodeState.of(node) for node in graph.nodes}
        added = [NodeChange(name, None, state) for name, state in now.items() if name not in self._nodes]
        removed = [NodeChange(name, state, None) for name, state in self._nodes.items() if name not in now]
        pairs = [(self._nodes[name], state) for name, state in now.items() if name in self._nodes]
        replaced = [
            NodeChange(old.name, old, new, meta_keys=_changed_keys(old.meta, new.meta))
            for old, new in pairs
            if not old.is_same_call(new) or old.inputs != new.inputs or old.meta.keys() != new.meta.keys()
        ]
        # Taken back last first: what was removed comes back in order, then what it feeds, then the new go.
        record.nodes = [*added, *replaced, *reversed(removed)]
        common = [name for name in self._nodes if name in now]
        if common != [name for name in now if name in self._nodes]:
            record.order = tuple(self._nodes)
        written = {old.name for old, new in pairs if not old.is_same_call(new)}
        written |= {old.name for old, new in pairs if self._calls_something_else(new, record)}
        written |= {change.name for change in added}
        rewired = {
            old.name
            for old, new in pairs
            if any(
                a != b and written.isdisjoint((a, b)) for a, b in zip(old.inputs, new.inputs, strict=False)
            )
        }
        record.marked = tuple(name for name in now if name in written or name in rewired)
        states = [*self._nodes.values(), *now.values()]
        record.modules = [
            replace(change, callers=tuple({s.name for s in states if _is_at_or_below(s.target, change.at)}))
            for change in record.modules
        ]

    def _calls_something_else(self, state: NodeState, record: Record) -> bool:
        """Tell whether another object is what an unchanged node calls or gets."""
        if state.op not in ("call_module", "get_attr"):
            return False
        if any(_is_at_or_below(change.at, str(state.target)) for change in record.modules):
            return True
        path, _, name = str(state.target).rpartition(".")
        if path not in self._modules:
            return False
        before = self._attributes[id(self._modules[path])]
        module = find_module(self._graph_module, path)
        return module is not None and not _is_same(_entry(before, name), _entry(vars(module), name))


@dataclass(frozen=True)
class _TensorState:
    tensor: torch.Tensor
    content: torch.Tensor
    """The tensor's memory, in another object."""
    values: torch.Tensor | None
    """A copy."""
    requires_grad: bool
    attributes: dict[str, Any]
    """Those of a wrapper; its data is in the tensors among them."""
    inner: tuple["_TensorState", ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, keep_values: bool) -> "_TensorState":
        inner = tuple(cls.of(part, keep_values) for part in inner_tensors(tensor).values())
        attributes = dict(vars(tensor)) if inner else {}
        copies = keep_values and not tensor.is_meta and not inner
        values = tensor.detach().clone() if copies else None
        return cls(tensor, tensor.detach(), values, tensor.requires_grad, attributes, inner)

    @property
    def is_written(self) -> bool:
        return (
            self.is_moved
            or any(part.is_written for part in self.inner)
            or (self.values is not None and not same_bits(self.content, self.values))
        )

    @property
    def is_moved(self) -> bool:
        """Whether the tensor is another piece of memory, or seen in another way, than it was."""
        if self.inner:
            now = vars(self.tensor)
            return any(now.get(name) is not value for name, value in self.attributes.items())
        return _place(self.tensor) != _place(self.content)

    def put_back(self) -> None:
        if self.inner:
            vars(self.tensor).update(self.attributes)
            for part in self.inner:
                part.put_back()
        with torch.no_grad():
            if self.is_moved:
                self.tensor.data = self.content
            if self.is_written and self.values is not None:
                self.content.copy_(self.values)
        if self.tensor.is_leaf and self.tensor.requires_grad != self.requires_grad:
            self.tensor.requires_grad_(self.requires_grad)

    def moved_out(self) -> torch.Tensor | None:
        """Put the tensor back and return another that is what it was made, or ``None`` if it is as it was."""
        is_written, requires_grad = self.is_written, self.tensor.requires_grad
        if not is_written and requires_grad == self.requires_grad:
            return None
        now = self.tensor.detach()
        content = now.clone() if is_written else now
        self.put_back()
        if isinstance(self.tensor, nn.Parameter):
            return nn.Parameter(content, requires_grad)
        return content.requires_grad_(requires_grad)


class _Mover:
    """Moves what was written in place to new tensors and modules."""

    def __init__(self, attributes: dict[int, dict[str, Any]], tensors: list[_TensorState]) -> None:
        self._attributes = attributes
        moved_out = ((state.tensor, state.moved_out()) for state in tensors)
        self._new_tensors = {id(tensor): new for tensor, new in moved_out if new is not None}
        self._done: dict[int, nn.Module] = {}

    def move(self, root: GraphModule) -> None:
        self._use_new_tensors(root)
        self._move_children(root, is_below_new=False)

    def _move_children(self, module: nn.Module, *, is_below_new: bool) -> None:
        for name, child in list(module._modules.items()):
            if child is not None:
                module._modules[name] = self._moved(child, is_below_new)

    def _moved(self, module: nn.Module, is_below_new: bool) -> nn.Module:
        if id(module) in self._done:
            return self._done[id(module)]
        before = self._attributes.get(id(module))
        self._use_new_tensors(module)
        is_written = before is not None and not _same_attributes(before, vars(module))
        self._done[id(module)] = module
        self._move_children(module, is_below_new=is_below_new or is_written or before is None)
        if before is None:
            return module
        has_other_children = list(before["_modules"].items()) != list(module._modules.items())
        if is_written or (is_below_new and has_other_children):
            new = module.__class__.__new__(module.__class__)
            vars(new).update(attributes_of(module))
            vars(module).clear()
            vars(module).update(before)
            self._done[id(module)] = new
            return new
        return module

    def _use_new_tensors(self, module: nn.Module) -> None:
        for holder in (vars(module), *(vars(module)[name] for name in _TENSORS)):
            for name, value in holder.items():
                if id(value) in self._new_tensors:
                    holder[name] = self._new_tensors[id(value)]


def _tensors_in(module: nn.Module) -> Iterator[torch.Tensor]:
    for holder in (vars(module), *(vars(module)[name] for name in _TENSORS)):
        yield from (value for value in holder.values() if isinstance(value, torch.Tensor))


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    if isinstance(tensor, LazyTensor):
        return tensor.dtype, tuple(tensor.shape), tensor.place
    memory = tensor.data_ptr() if tensor.layout is torch.strided and not tensor.is_meta else None
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return tensor.device, tensor.dtype, tensor.layout, tuple(tensor.shape), strides, memory


def _is_same(a: Any, b: Any) -> bool:
    """Tell whether an attribute is what it was: the same object, or a copied dictionary of the same ones."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(a[key] is b[key] for key in a)
    return a is b or (isinstance(a, bool | int | float | str | tuple) and same_argument(a, b))


def _same_attributes(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_is_same(a[name], b[name]) for name in a if name != "_modules")


def _entry(attributes: dict[str, Any], name: str) -> Any:
    for holder in ("_modules", *_TENSORS):
        if name in attributes[holder]:
            return attributes[holder][name]
    return attributes.get(name)


def _print_of_what_is_new(module: nn.Module | None, original: nn.Module | None) -> ModulePrint:
    if module is None:
        return ModulePrint({}, {}, training=False)
    kept = set() if original is None else set(map(id, original.parameters()))
    names = [name for name, parameter in module.named_parameters() if id(parameter) not in kept]
    return ModulePrint.of(module, names)


def _changed_keys(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in {**a, **b} if key not in a or key not in b or a[key] is not b[key])


def _is_at_or_below(target: object, path: str) -> bool:
    return isinstance(target, str) and (target == path or target.startswith(f"{path}."))
