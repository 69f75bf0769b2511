"""A graph module before a function that knows nothing of fxlab, and the change that it makes.

The function runs on a copy, whose unchanged parts are replaced by the original objects (``adoption.py``). So
the difference is made of references, and to revert it is to restore references.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.transformations.foreign.adoption import OF_TORCH, TENSORS, is_same
from fxlab.transformations.journal.journal import (
    KEY,
    Absent,
    AttributeChange,
    ModuleChange,
    NodeChange,
    Record,
)
from fxlab.transformations.journal.module_tree import (
    ModulePrint,
    attributes_of,
    find_module,
    join_path,
    parents_of,
)
from fxlab.transformations.journal.name_order import moved
from fxlab.transformations.journal.node_state import KeptMeta, NodeState
from fxlab.transformations.signature import digest


class Snapshot:
    """The nodes, modules and attributes of a graph module."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._nodes = {node.name: NodeState.of(node) for node in graph_module.graph.nodes}
        self._codegen = graph_module.graph._codegen
        self._modules = dict(graph_module.named_modules(remove_duplicate=False))
        self._attributes = {id(module): attributes_of(module) for module in self._modules.values()}

    def difference(self, signature: str) -> Record | None:
        """Return the changes since, in a form that can be reverted; ``None`` if there are none."""
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
        for holder in ("", *TENSORS, "meta"):
            old, new = (attributes[holder] if holder else attributes for attributes in (before, now))
            left_out = {KEY} if holder else {*OF_TORCH, *TENSORS}
            names = [name for name in {**old, **new} if name not in left_out]
            kept = {name: KeptMeta({name: old[name]}) for name in old} if holder == "meta" else old
            record.attributes += [
                AttributeChange(holder, name, kept.get(name, Absent()), tuple(old) if holder else ())
                for name in names
                if name not in old or name not in new or not is_same(old[name], new[name])
            ]
        if digest(root.graph._codegen) != digest(self._codegen):
            record.attributes.append(AttributeChange("graph", "_codegen", self._codegen))

    def _compare_modules(self, path: str, record: Record) -> None:
        """Note the replaced modules below a path whose own module is still there."""
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
            NodeChange(old.name, old, new, meta_keys=old.changed_meta(new))
            for old, new in pairs
            if not old.is_same(new)
        ]
        # Reverted last first: removed nodes come back in order, then their users change, then new nodes go.
        record.nodes = [*added, *replaced, *reversed(removed)]
        common = [name for name in self._nodes if name in now]
        if common != [name for name in now if name in self._nodes]:
            record.order = tuple(self._nodes)
        written = {old.name for old, new in pairs if not old.is_same_call(new)}
        changed = {path for change in record.modules for path in (*parents_of(change.at), change.at)}
        written |= {old.name for old, new in pairs if self._calls_something_else(new, changed)}
        written |= {change.name for change in added}
        rewired = {
            old.name
            for old, new in pairs
            if any(
                a != b and written.isdisjoint((a, b)) for a, b in zip(old.inputs, new.inputs, strict=False)
            )
        }
        marked = tuple(name for name in now if name in written or name in rewired)
        record.marked = marked or moved([*self._nodes], [*now])
        states = [*self._nodes.values(), *now.values()]
        callers = defaultdict[str, dict[str, None]](dict)
        for state in states:
            if isinstance(state.target, str):
                for path in (*parents_of(state.target), state.target):
                    callers[path][state.name] = None
        record.modules = [replace(change, callers=tuple(callers[change.at])) for change in record.modules]

    def _calls_something_else(self, state: NodeState, changed: set[str]) -> bool:
        """Tell whether an unchanged node calls or gets another object than before."""
        if state.op not in ("call_module", "get_attr"):
            return False
        if state.target in changed:
            return True
        path, _, name = str(state.target).rpartition(".")
        if path not in self._modules:
            return False
        before = self._attributes[id(self._modules[path])]
        module = find_module(self._graph_module, path)
        return module is not None and not is_same(_entry(before, name), _entry(vars(module), name))


def _entry(attributes: dict[str, Any], name: str) -> Any:
    for holder in ("_modules", *TENSORS):
        if name in attributes[holder]:
            return attributes[holder][name]
    return attributes.get(name)


def _print_of_what_is_new(module: nn.Module | None, original: nn.Module | None) -> ModulePrint:
    if module is None:
        return ModulePrint({}, {}, training=False)
    kept = set() if original is None else set(map(id, original.parameters()))
    names = [name for name, parameter in module.named_parameters() if id(parameter) not in kept]
    return ModulePrint.of(module, names)
