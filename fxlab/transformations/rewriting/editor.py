"""The editor by which passes change a graph module, so that every change is written to the journal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.node import Argument, Target, map_arg

from fxlab.models.graph_modules.parts import Container, Requirement, first_compute, put_requirement, variants
from fxlab.transformations.analysis.graph_analysis import Passing
from fxlab.transformations.journal import module_tree
from fxlab.transformations.journal.journal import (
    Absent,
    AttributeChange,
    Journal,
    ModuleChange,
    NodeChange,
    Record,
)
from fxlab.transformations.journal.node_state import NodeState
from fxlab.transformations.marks import add_mark
from fxlab.transformations.views.layer import Layer


class Editor:
    """The changes that a pass may make to a graph module, written to the record of the candidate.

    Parameters
    ----------
    graph_module
        The module to change.
    journal
        Takes the orders of nodes and children.
    record
        Takes the changes.
    passing
        The passing of tensors to the graph, if it is a body.
    beside
        Returns the editor of another graph: the one around a body, or another body of its call.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        journal: Journal,
        record: Record,
        passing: Passing | None = None,
        beside: Callable[[GraphModule], "Editor"] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self._journal = journal
        self._record = record
        self._passing = passing
        self._beside = beside
        self._editors = {graph_module: self}

    def insert_before(
        self,
        node: Node,
        op: str,
        target: Target,
        args: tuple[Argument, ...] = (),
        kwargs: Mapping[str, Argument] | None = None,
        *,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Node:
        """Insert a new node before ``node`` and return it."""
        graph = self.graph_module.graph
        with graph.inserting_before(node):
            new = graph.create_node(op, target, args, dict(kwargs or {}), name)
        new.meta.update(meta or {})
        self._record.nodes.append(NodeChange(new.name, None, NodeState.of(new)))
        return new

    def change(
        self,
        node: Node,
        *,
        op: str | None = None,
        target: Target | None = None,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the call of a node; its name and place stay, and its ``meta`` except given entries."""
        before = NodeState.of(node)
        self._note_readings(node)
        if op is not None and op != node.op:  # each assignment re-indexes the node
            node.op = op
        if target is not None and target is not node.target:
            node.target = target
        if args is not None:
            node.args = args
        if kwargs is not None:
            node.kwargs = dict(kwargs)
        node.meta.update(meta or {})
        keys = tuple(meta or ())
        self._record.nodes.append(NodeChange(node.name, before, NodeState.of(node), meta_keys=keys))

    def move(self, nodes: Sequence[Node], before: Node) -> None:
        """Move nodes right before another, in their order."""
        for node in nodes:
            self._record.moves = (*self._record.moves, (node.name, node.next.name))
            before.prepend(node)

    def read_instead(self, old: Node, new: Node) -> tuple[Node, ...]:
        """Replace ``old`` by ``new`` in its users and return these; ``new`` may read ``old``."""
        readers = tuple(user for user in old.users if user is not new)
        for reader in readers:
            given: Any = map_arg((reader.args, reader.kwargs), lambda node: new if node is old else node)
            self.change(reader, args=given[0], kwargs=given[1])
        return readers

    def erase(self, node: Node, *, pass_on_to: Node | None = None) -> None:
        """Erase a node; its users read ``pass_on_to`` instead."""
        if pass_on_to is not None and any(user is not node for user in pass_on_to.users):
            self.read_instead(node, pass_on_to)  # noted one by one, since not all of its users come back
            pass_on_to = None
        before = NodeState.of(node)
        self._note_readings(node)
        if pass_on_to is not None:
            node.replace_all_uses_with(pass_on_to)
        self.graph_module.graph.erase_node(node)
        self._record.nodes.append(
            NodeChange(before.name, before, None, pass_on_to.name if pass_on_to is not None else None)
        )

    def _note_readings(self, node: Node) -> None:
        for value in node.all_input_nodes:
            if value.op == "get_attr" and value.name not in self._record.read:
                self._record.read[value.name] = NodeState.of(value)

    def replace_modules(self, nodes: Sequence[Node], by: nn.Module, at: str) -> None:
        """Replace the modules that nodes call by one, at their path or a free one."""
        callers = tuple(node.name for node in nodes)
        self._replace([str(node.target) for node in nodes], by, at, callers)

    def replace_layers(self, layers: Sequence[Layer[Any]], by: nn.Module, at: str) -> dict[str, Node]:
        """Replace the modules of layers by one, at their path or a free one.

        For layers whose call reads tensors, the modules are the holders of the tensors, and a holder of the
        tensors of ``by`` replaces them; if tensors stay, it is added next to them. The pass then changes or
        erases the calls, and calls :meth:`erase_tensors`.

        Returns
        -------
        dict of str to Node
            For such layers: nodes that read the new tensors, by name, before the first call.
        """
        order = tuple(layer.path for layer in layers)
        paths = [layer.path for layer in layers if not layer.tensors_stay]
        callers = [node.name for layer in layers for node in (layer.call, *layer.tensors.values())]
        seen_as = {layer.path: layer.module for layer in layers if not layer.is_module}
        written_as = next(layer for layer in layers if layer.path == at) if at in order else layers[0]
        if written_as.is_module:
            self._replace(paths, by, at, callers, seen_as, order)
            return {}
        held = Container()
        held._parameters.update({name: value for name, value in by._parameters.items() if value is not None})
        held.training = by.training
        known = {
            name: _meta_of(written_as.tensors["weight"], parameter)
            for name, parameter in held.named_parameters()
        }
        passing, reader, first = self._passing, self, min(layer.call for layer in layers)
        if passing is not None:  # a body without tensors of its own
            reader, first = self._of(passing.around), passing.call
            tensors = (node for layer in layers for node in layer.tensors.values())
            callers = [passing.readings[node].name for node in tensors]
        reader._replace(paths, held, at, callers, seen_as, order)
        read: dict[str, Node] = {}
        for name, meta in known.items():
            path = module_tree.join_path(at, name)
            flat = path.replace(".", "_")
            read[name] = reader.insert_before(first, "get_attr", path, name=flat, meta=meta)
            if passing is not None:
                read[name] = self._pass_on(read[name], passing, flat)
        return read

    def _pass_on(self, reading: Node, passing: Passing, name: str) -> Node:
        """Add an argument to the call of the body, and return the body's new input."""
        around = self._of(passing.around)
        around.change(passing.call, args=passing.arguments((*passing.operands, reading)))
        around._record.marked = (passing.call.name,)
        add_mark(passing.call, around._record.signature)
        nodes = [node for body in passing.bodies for node in body.graph.nodes]
        taken = {text for node in nodes for text in (node.name, str(node.target))}
        free = next(each for each in variants(name) if each not in taken)
        made: dict[GraphModule, Node] = {}
        for body in passing.bodies:
            edit, first = self._of(body), first_compute(body.graph)
            made[body] = edit.insert_before(first, "placeholder", free, name=free, meta=reading.meta)
        return made[self.graph_module]

    def _of(self, graph_module: GraphModule) -> "Editor":
        """Return the editor of a graph: this one, that of the graph around, or that of another body."""
        if graph_module not in self._editors:
            assert self._beside is not None
            self._editors[graph_module] = self._beside(graph_module)
        return self._editors[graph_module]

    def erase_tensors(self, layer: Layer[Any]) -> None:
        """Erase the nodes that gave a call its tensors, once the call is changed or erased."""
        for node in layer.inner:
            self.erase(node)
        for node in layer.tensors.values():
            if self._passing is None:
                self.erase(node)
            else:
                self._pass_no_more(node, self._passing)
        for node in layer.unused:
            self.erase(node)

    def _pass_no_more(self, node: Node, passing: Passing) -> None:
        """Remove an argument from the call of the body, and erase the body's input."""
        around, reading = self._of(passing.around), passing.readings[node]
        others = tuple(value for value in passing.operands if value is not reading)
        around.change(passing.call, args=passing.arguments(others))
        around.erase(reading)
        for body, each in zip(passing.bodies, passing.counterparts[node], strict=True):
            self._of(body).erase(each)

    def _replace(
        self,
        paths: Sequence[str],
        by: nn.Module,
        at: str,
        callers: Iterable[str],
        seen_as: Mapping[str, nn.Module] | None = None,
        order: tuple[str, ...] = (),
    ) -> None:
        for path in dict.fromkeys((at, *paths)):
            for parent in module_tree.parents_of(path):
                if parent not in self._journal.child_order:
                    module = module_tree.find_module(self.graph_module, parent)
                    self._journal.child_order[parent] = [] if module is None else list(module._modules)
        originals = {
            path: cast(nn.Module, module_tree.find_module(self.graph_module, path)) for path in paths
        }
        change = ModuleChange(
            originals, at, module_tree.ModulePrint.of(by), tuple(callers), dict(seen_as or {}), order
        )
        self._record.modules.append(change)
        for path in paths:
            if path != at:
                module_tree.remove_module(self.graph_module, path)
        module_tree.put_module(self.graph_module, at, by)

    def add_buffer(self, name: str, value: torch.Tensor) -> None:
        """Give the graph module a new buffer, which reversal removes."""
        self._record.attributes.append(AttributeChange("_buffers", name, Absent()))
        self.graph_module.register_buffer(name, value)

    def add_parameter(self, name: str, value: nn.Parameter) -> None:
        """Give the graph module a new parameter, which reversal removes."""
        self._record.attributes.append(AttributeChange("_parameters", name, Absent()))
        self.graph_module.register_parameter(name, value)

    def add_module(self, name: str, module: nn.Module) -> None:
        """Give the graph module a new child, which reversal removes."""
        self._record.attributes.append(AttributeChange("_modules", name, Absent()))
        self.graph_module.add_module(name, module)

    def add_check(self, required: Requirement) -> str:
        """Give the graph module a checking child, which reversal removes; return its name."""
        name = put_requirement(self.graph_module, required)
        self._record.attributes.append(AttributeChange("_modules", name, Absent()))
        return name

    def free_path(self, parent: str, name: str) -> str:
        """Return a path for a new child of the module at ``parent``: of that name, or a numbered variant."""
        roots = [self.graph_module, *([self._passing.around] if self._passing else [])]
        parents = [module_tree.find_module(root, parent) for root in roots]
        free = (each for each in variants(name) if not any(hasattr(module, each) for module in parents))
        return module_tree.join_path(parent, next(free))


def insert_call(
    edit: Editor,
    node: Node,
    ending: str,
    target: Target,
    args: tuple[Argument, ...],
    kwargs: Mapping[str, Argument] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Node:
    """Insert a call right before a node, at the place of the node in the model, called ``node_ending``."""
    known, name = place_of(node) | dict(meta or {}), f"{node.name}_{ending}"
    return edit.insert_before(node, "call_function", target, args, kwargs, name=name, meta=known)


def place_of(node: Node) -> dict[str, Any]:
    """Return the place in the model from a node's ``meta``, for a node that is inserted next to it."""
    return {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}


def _meta_of(node: Node, tensor: torch.Tensor) -> dict[str, Any]:
    """Return the ``meta`` of a node that reads a tensor, from that of a node that reads another tensor."""
    value = node.meta.get("val")
    known = place_of(node)
    if not isinstance(value, torch.Tensor):
        return known
    with torch.no_grad():
        return known | {"val": value.new_empty(tensor.shape, requires_grad=tensor.requires_grad)}
