"""The base of passes that write their changes to the journal of the module, and revert them from there."""

import copy
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.garbage import without_collecting
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.copies import deep_copy
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.transformations.base import ReversibleTransformation
from fxlab.transformations.journal import module_tree
from fxlab.transformations.journal.journal import (
    Absent,
    AttributeChange,
    Journal,
    ModuleChange,
    NodeChange,
    Record,
    Recorded,
)
from fxlab.transformations.journal.name_order import in_order, merged_order, move_after_inputs, put_in_place
from fxlab.transformations.journal.node_state import KeptMeta, NodeState, free_name
from fxlab.transformations.marks import marks, remove_mark


class JournaledTransformation(ReversibleTransformation):
    """A transformation that is reversible because its changes are in the journal."""

    copies_on_write = True

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Revert all changes by passes with this signature, in this module or one that it is a copy of.

        Later passes that build on it are reverted first, and applied again. Raises ValueError if the data for
        it are lost, or a later pass that builds on it is lost and cannot be applied again.
        """
        self._check_graph_module(graph_module)
        graphs = graphs_of(graph_module).values()
        above: dict[str, Recorded] = {}
        with restored_on_failure(graph_module) if len(graphs) > 1 else nullcontext():
            signatures = self._depending(graphs)
            for module in graphs:
                others = self._taken_back(module, signatures)
                order = merged_order(list(above), list(others))
                above = {signature: (above | others)[signature] for signature in order}
            for transformation in above.values():
                transformation.transform(graph_module)
        return graph_module

    def _depending(self, graphs: Collection[GraphModule]) -> set[str]:
        """Return the signatures to revert as a whole: of several graphs, one may depend on another."""
        signatures, found = set[str](), {self.signature}
        journals = [Journal.of(module) for module in graphs]
        while not found <= signatures:
            signatures |= found
            if len(graphs) > 1:
                found = {each.signature for journal in journals for each in journal.depending_on(signatures)}
        return signatures

    def _taken_back(self, graph_module: GraphModule, signatures: set[str]) -> dict[str, Recorded]:
        """Revert records of one graph, and return the passes to apply again, by signature."""
        journal = Journal.of(graph_module)
        signature = self.signature
        records = journal.depending_on(signatures)
        if not records:
            self._check_no_marks(graph_module, signature)
            return {}
        journal.transformations[signature] = self
        above = {record.signature: self._found(record.signature, journal) for record in records}
        above.pop(signature, None)
        with torch.inference_mode(False), torch.no_grad(), without_collecting():
            undo(graph_module, journal, records)
        journal.keep_in(graph_module)
        return above

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Write values of a replacement that changed since it was made back to its originals."""
        warnings.warn(
            f"{self.name} cannot bring what was written to a {type(replacement).__name__} back to the "
            "modules it stands in for; they come back as they were.",
            stacklevel=2,
        )

    def _begin(self, graph_module: GraphModule, journal: Journal) -> None:
        ensure_picklable(graph_module)
        journal.note_order_of_nodes(graph_module)
        journal.transformations[self.signature] = self

    def _found(self, signature: str, journal: Journal) -> Recorded:
        if signature not in journal.transformations:
            raise ValueError(
                f"{self.name} cannot be reversed, because a transformation that was applied after it "
                f"({signature}) would have to be applied again, and was lost when the module was pickled. "
                "Reverse that one first."
            )
        return journal.transformations[signature]

    def _check_no_marks(self, graph_module: GraphModule, signature: str) -> None:
        marked = [node.name for node in graph_module.graph.nodes if signature in marks(node)]
        if marked:
            raise ValueError(
                f"Node {marked[0]!r} is marked by {self.name}, but this module has lost what "
                "reversing needs, which lies in graph_module.meta. Copy modules with "
                "copy.deepcopy, pickle or torch.save."
            )


@contextmanager
def restored_on_failure(graph_module: GraphModule) -> Iterator[None]:
    """Restore the graph, the module tree, the flags and the metadata if the block raises.

    Writes in place into a tensor are not reverted: that would take a copy of all weights.
    ``graph_module``: the module that the block changes.
    """
    graphs = [
        (module, deep_copy(module.graph), copy.copy(Journal.of(module)))
        for module in graphs_of(graph_module).values()
    ]
    roots = (graph_module, *(original for _, _, journal in graphs for original in journal.originals))
    modules = {module: None for root in roots for module in root.modules()}
    held = [(module, module_tree.attributes_of(module)) for module in modules]
    trained = [(p, p.requires_grad) for root in roots for p in root.parameters()]
    try:
        yield
    except BaseException:
        for module, attributes in held:
            vars(module).clear()
            vars(module).update(attributes)
        for parameter, is_trained in trained:
            parameter.requires_grad_(is_trained)
        for module, graph, journal in graphs:
            journal.keep_in(module)
            module.graph = graph
        raise


def undo(graph_module: GraphModule, journal: Journal, records: list[Record]) -> None:
    """Revert records of a module, given in their order, and forget them; no other record may depend on them.

    Raises ValueError, and changes nothing, if nodes added since prevent it.
    """
    undoing = _Undoing(graph_module, journal)
    undoing.check(records)
    undoing.know_erased(records)
    journal.note_order_of_nodes(graph_module)
    for record in reversed(records):
        undoing.take_back(record)
    undoing.finish(records)


class _Undoing:
    def __init__(self, graph_module: GraphModule, journal: Journal) -> None:
        self._graph_module = graph_module
        self._journal = journal
        self._nodes = {node.name: node for node in graph_module.graph.nodes}
        self._callers = self._all_callers()
        self._recreated: list[Node] = []
        self._parents: set[str] = set()
        self._erased: dict[str, NodeState] = {}

    def check(self, records: list[Record]) -> None:
        """Refuse to leave a node without its inputs."""
        changes = [change for record in records for change in record.nodes]
        own = {change.name for change in changes}
        # What reads one of these reads the restored node again.
        read_instead = {change.passed_on_to for change in changes}
        for record in records:
            for module_change in record.modules:
                strangers = [name for name in self._strangers(record, module_change) if name not in own]
                if strangers and self._is_in_place(record):
                    raise ValueError(
                        f"Module {module_change.at!r} cannot be taken back, because {strangers[0]!r}, "
                        f"which was added since, calls it. Let {strangers[0]!r} call something else first."
                    )
            for change in record.nodes:
                node = self._nodes.get(change.name)
                if change.before is None and node is not None and node.name not in read_instead:
                    strangers = [user.name for user in node.users if user.name not in own]
                    if strangers:
                        raise ValueError(
                            f"Node {node.name!r} cannot be taken back, because {strangers[0]!r}, which "
                            f"was added since, reads it. Let {strangers[0]!r} read something else first."
                        )

    def know_erased(self, records: list[Record]) -> None:
        """Remember the nodes that records have changed or erased, or no longer read."""
        for record in records:
            for change in record.nodes:
                if change.before is not None:
                    self._erased.setdefault(change.name, change.before)
            for name, state in record.read.items():
                self._erased.setdefault(name, state)

    def take_back(self, record: Record) -> None:
        """Revert one record."""
        in_place = self._is_in_place(record)
        moved_inputs = self._moved_inputs(record)
        for node_change in reversed(record.nodes):
            self._take_back_node(node_change, moved_inputs, in_place)
        if record.is_opaque:
            self._callers = self._all_callers()
        for module_change in reversed(record.modules):
            if not self._strangers(record, module_change):
                self._take_back_modules(record, module_change)
        for attribute_change in reversed(record.attributes):
            self._take_back_attribute(attribute_change)

    def _is_in_place(self, record: Record) -> bool:
        return all(name in self._nodes for name in record.marked)

    def _all_callers(self) -> dict[str, list[str]]:
        callers: dict[str, list[str]] = defaultdict(list)
        for node in self._graph_module.graph.nodes:
            if node.op == "call_module":
                callers[str(node.target)].append(node.name)
            elif node.op == "get_attr":
                callers[module_tree.split_path(str(node.target))[0]].append(node.name)
        return callers

    def _strangers(self, record: Record, change: ModuleChange) -> list[str]:
        """Return the callers of a replacement that neither called an original nor were made for it."""
        known = {*record.marked, *change.callers, *(node_change.name for node_change in record.nodes)}
        ops = ("call_module", "get_attr") if change.seen_as else ("call_module",)
        others = [name for name in self._callers.get(change.at, ()) if name not in known]
        return [name for name in others if name in self._nodes and self._nodes[name].op in ops]

    def finish(self, records: list[Record]) -> None:
        """Restore the order of nodes and modules; drop the marks and the records."""
        put_in_place(self._graph_module.graph, self._recreated, self._journal.node_order)
        for record in reversed(records):
            for name, follower in reversed(record.moves):
                if name in self._nodes and follower in self._nodes:
                    # Before its former follower, as far as its users allow.
                    node = self._nodes[name]
                    min([self._nodes[follower], *node.users]).prepend(node)
            for name, _ in record.moves:
                if name in self._nodes:
                    move_after_inputs(self._nodes[name])
            if record.order:
                known = [self._nodes[name] for name in record.order if name in self._nodes]
                put_in_place(self._graph_module.graph, known, record.order)
        for parent in self._parents:
            module_tree.reorder_children(
                self._graph_module, parent, self._journal.child_order.get(parent, [])
            )
        marked = {(record.signature, name) for record in records for name in record.marked}
        self._journal.forget(records)
        marked -= {(record.signature, name) for record in self._journal.records for name in record.marked}
        for signature, name in marked:
            if name in self._nodes:
                remove_mark(self._nodes[name], signature)

    def _moved_inputs(self, record: Record) -> dict[str, str]:
        """Find the inputs that others have replaced since: the restored nodes read the replacements."""
        moved: dict[str, str] = {}
        for change in {change.name: change for change in record.nodes}.values():  # the last of each node
            node = self._nodes.get(change.name)
            if change.after is None or node is None or node.target != change.after.target:
                continue
            then, now = change.after.inputs, NodeState.of(node).inputs
            if len(then) == len(now):
                moved.update((a, b) for a, b in zip(then, now, strict=True) if a != b)
        return moved

    def _take_back_node(self, change: NodeChange, moved_inputs: dict[str, str], in_place: bool) -> None:
        node = self._nodes.get(change.name)
        if change.before is None:
            if node is not None and not node.users:
                self._graph_module.graph.erase_node(node)
                free_name(self._graph_module.graph, change.name)
                del self._nodes[change.name]
            return
        before = (
            change.before.renamed(lambda name: moved_inputs.get(name, name))
            if moved_inputs
            else change.before
        )
        if node is not None or in_place:
            for name in before.inputs:
                self._bring_back(name)
        if any(name not in self._nodes for name in before.inputs):
            return
        if node is not None:
            before.restore(node, self._nodes)
            for key in change.meta_keys:
                if key in before.meta:
                    node.meta[key] = before.meta[key]
                else:
                    node.meta.pop(key, None)
        elif in_place:
            self._recreate(before, change)

    def _bring_back(self, name: str) -> None:
        """Build a node again that others have removed as unused."""
        state = self._erased.get(name)
        if name in self._nodes or state is None:
            return
        for read in state.inputs:
            self._bring_back(read)
        if self._nodes.keys() >= set(state.inputs):
            self._nodes[name] = state.build(self._graph_module.graph, self._nodes)
            self._recreated.append(self._nodes[name])

    def _recreate(self, before: NodeState, change: NodeChange) -> None:
        node = before.build(self._graph_module.graph, self._nodes)
        self._nodes[node.name] = node
        self._recreated.append(node)
        reader = self._nodes.get(change.passed_on_to or "")
        if reader is not None:
            if "val" in reader.meta:
                node.meta.setdefault("val", reader.meta["val"])
            reader.replace_all_uses_with(node, lambda user: user is not node)

    def _take_back_attribute(self, change: AttributeChange) -> None:
        root: Any = self._graph_module
        owner = root.graph if change.holder == "graph" else root
        holder = vars(root).get(change.holder, vars(owner))
        before = change.before
        if isinstance(before, KeptMeta):  # empty if its entry was not pickled
            before = before.get(change.name, Absent())
        if isinstance(before, Absent):
            holder.pop(change.name, None)
        else:
            holder[change.name] = before
        if change.order:
            in_their_order = {name: holder[name] for name in in_order(holder, change.order)}
            holder.clear()
            holder.update(in_their_order)

    def _take_back_modules(self, record: Record, change: ModuleChange) -> None:
        current = module_tree.find_module(self._graph_module, change.at)
        if current is not None:
            self._carry(record.signature, current, change)
        if record.is_opaque and record.mode != self._graph_module.training:
            for original in change.originals.values():
                original.train(self._graph_module.training)
        for path in (change.at, *change.originals):
            self._parents.update(module_tree.parents_of(path))
        module_tree.remove_module(self._graph_module, change.at)
        for path, original in change.originals.items():
            module_tree.put_module(self._graph_module, path, original)

    def _carry(self, signature: str, current: torch.nn.Module, change: ModuleChange) -> None:
        now = module_tree.ModulePrint.of(current, change.made.tensors)
        if now.requires_grad.keys() != change.made.requires_grad.keys():
            return  # another module has replaced it
        if now.tensors != change.made.tensors:
            self._journal.transformations[signature].update_originals(current, change.seen)
            for path, original in change.originals.items():
                if path in change.seen_as:
                    _hold_again(original, change.seen_as[path])
        stayed = [change.seen_as[path] for path in change.order if path not in change.originals]
        module_tree.carry_flags(current, change.made, iter([*change.originals.values(), *stayed]))


def _hold_again(original: torch.nn.Module, stand_in: torch.nn.Module) -> None:
    """Give a module the present tensors of another, which shared them."""
    for name in original._parameters.keys() & stand_in._parameters.keys():
        original._parameters[name] = stand_in._parameters[name]
    for name in original._buffers.keys() & stand_in._buffers.keys():
        original._buffers[name] = stand_in._buffers[name]
