"""The journal of a graph module: every change, with the data to revert it.

The journal is in ``graph_module.meta``, which copies and pickles of the module keep. It names nodes
and holds the modules that were taken out, so it is true of a copy as well: copying the module copies the
modules in the journal with it, and a shared tensor stays shared.

Records are reverted last first. To revert one in the middle, those above it that touch the same nodes or
modules are reverted before, and applied again after.
"""

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.transformations.journal.module_tree import ModulePrint, parents_of, split_path
from fxlab.transformations.journal.name_order import merged_order
from fxlab.transformations.journal.node_state import NodeState
from fxlab.values.pickling import is_picklable

KEY = "fxlab.transformations"
"""The key of the journal in ``graph_module.meta``."""


class Recorded(Protocol):
    """A transformation whose changes are in the journal."""

    @property
    def signature(self) -> str:
        """The signature of its records."""

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Apply it again."""

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Write new values of a replacement back to its originals."""


@dataclass(frozen=True)
class NodeChange:
    """A node that was inserted (no ``before``), changed, or erased (no ``after``)."""

    name: str
    before: NodeState | None
    after: NodeState | None
    passed_on_to: str | None = None
    """The node that the users of an erased node read instead."""
    meta_keys: tuple[str, ...] = ()
    """The entries of ``meta`` that are a different object afterwards."""

    @property
    def is_rewired(self) -> bool:
        """Whether the node does the same as before, on other values."""
        before, after = self.before, self.after
        return before is not None and after is not None and before.is_same_call(after)


_LAYOUTS = ("contiguous", torch.ops.aten.contiguous.default, torch.ops.aten.clone.default)


@dataclass(frozen=True)
class ModuleChange:
    """Modules that were taken out of the tree, and the one that stands in for them."""

    originals: dict[str, nn.Module]
    """By the paths they had; the very objects."""
    at: str
    """The path of the module that stands in."""
    made: ModulePrint
    """The print of that module when it was made."""
    callers: tuple[str, ...]
    """The nodes that called the originals."""
    seen_as: dict[str, nn.Module] = field(default_factory=dict)
    """For originals that only hold the tensors of an operator: modules of ``torch.nn`` that share them."""
    order: tuple[str, ...] = ()
    """The paths of :attr:`seen`, if tensors of an operator have stayed and no original was taken out."""

    @property
    def seen(self) -> list[nn.Module]:
        """The modules to which new values go back."""
        return [self.seen_as.get(path) or self.originals[path] for path in self.order or self.originals]


@dataclass(frozen=True)
class AttributeChange:
    """An attribute of the graph module itself, or of its graph, that was set or deleted."""

    holder: str
    """``""`` (the module), ``"_parameters"``, ``"_buffers"`` or ``"meta"`` of it, or ``"graph"``."""
    name: str
    before: Any
    """The very object, for metadata in a ``KeptMeta``; an :class:`Absent` if there was none."""
    order: tuple[str, ...] = ()
    """The names of all parameters or buffers of the module, in their order."""


class Absent:
    """Stands for a missing attribute."""


@dataclass
class Record:
    """One rewritten candidate, or the whole change of a foreign function."""

    signature: str
    candidate: tuple[str, ...] = ()
    """The nodes of the candidate, as in explanations."""
    marked: tuple[str, ...] = ()
    nodes: list[NodeChange] = field(default_factory=list)
    modules: list[ModuleChange] = field(default_factory=list)
    attributes: list[AttributeChange] = field(default_factory=list)
    read: dict[str, NodeState] = field(default_factory=dict)
    """Readings of attributes that changed or erased nodes no longer use, and that may go as dead code."""
    order: tuple[str, ...] = ()
    """The nodes in the order in which they stood, if some were moved."""
    moves: tuple[tuple[str, str], ...] = ()
    """The nodes that were moved by themselves, each with its former follower."""
    mode: bool = False
    """Whether the module was in training mode after an opaque change."""
    is_opaque: bool = False
    """Whether it may depend on all earlier changes, and all later ones on it."""

    @property
    def added(self) -> list[str]:
        """The inserted nodes, in order of insertion."""
        return [change.name for change in self.nodes if change.before is None]

    @property
    def replaced(self) -> set[str]:
        """The nodes that were changed or erased, or called a module that was replaced."""
        names = {change.name for change in self.nodes if change.before is not None}
        return names.union(*(change.callers for change in self.modules)) - self.rewired

    @property
    def stand_ins(self) -> set[str]:
        """The marked nodes that stand for the replaced ones, and new ones that they make contiguous."""
        if self.order and not (self.nodes or self.modules or self.attributes):
            return set()  # the marked nodes were moved
        marked = set(self.marked) - self.rewired - {name for name, _ in self.moves}
        changes = (change for change in self.nodes if change.name in marked)
        after = [change.after for change in changes if change.after and change.after.target in _LAYOUTS]
        return marked | set(self.added).intersection(*[state.inputs for state in after]) if after else marked

    @property
    def rewired(self) -> set[str]:
        """The nodes that do the same as before, on other values."""
        callers = {name for change in self.modules for name in change.callers}
        return {change.name for change in self.nodes if change.is_rewired} - callers

    @property
    def touched(self) -> Iterator[str]:
        """The nodes and modules that the record is about."""
        yield from self.marked
        yield from (name for name, _ in self.moves)
        for node_change in self.nodes:
            yield node_change.name
            if node_change.before is not None:
                kept = () if node_change.after is None else node_change.after.inputs
                # A former input must exist when the node is to read it again.
                yield from (name for name in node_change.before.inputs if name not in kept)
            for state in (node_change.before, node_change.after):
                if state is not None and state.op == "get_attr" and (holder := split_path(state.target)[0]):
                    yield f"module {holder}"
        for change in self.modules:
            yield f"module {change.at}"
            yield from (f"module {path}" for path in change.originals)


@dataclass
class Journal:
    """The records of a graph module, in order, and the former order of its nodes and modules."""

    records: list[Record] = field(default_factory=list)
    transformations: dict[str, Recorded] = field(default_factory=dict)
    node_order: list[str] = field(default_factory=list)
    child_order: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph_module: GraphModule) -> "Journal":
        """Return the journal of a module; if it has none, an empty one that it does not hold yet."""
        journal = graph_module.meta.get(KEY)
        return journal if isinstance(journal, Journal) else cls()

    @property
    def originals(self) -> Iterator[nn.Module]:
        """The modules that were taken out of the tree and may come back."""
        for record in self.records:
            for change in record.modules:
                yield from change.originals.values()

    def keep_in(self, graph_module: GraphModule) -> None:
        """Store the journal in a module unless it is empty."""
        if self.records:
            graph_module.meta[KEY] = self
        else:
            graph_module.meta.pop(KEY, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Journal":
        result = copy.copy(self)
        result.records = copy.deepcopy(self.records, memo)
        return result

    def __getstate__(self) -> dict[str, Any]:
        # A pass that cannot be pickled, such as one made of a lambda, cannot be applied again after loading.
        kept = {k: v for k, v in self.transformations.items() if is_picklable(v)}
        return {**vars(self), "transformations": kept}

    def __copy__(self) -> "Journal":
        return Journal(
            list(self.records), dict(self.transformations), list(self.node_order), dict(self.child_order)
        )

    def note_order_of_nodes(self, graph_module: GraphModule) -> None:
        """Note the order of the nodes, before or after some of them are removed."""
        self.node_order = merged_order(self.node_order, [node.name for node in graph_module.graph.nodes])

    def depending_on(self, signatures: Collection[str]) -> list[Record]:
        """Return the records of signatures, and those above with a node or module in common, in order."""
        touched: set[str] = set()
        result: list[Record] = []
        is_opaque = False
        for record in self.records:
            rests_on_others = result and (is_opaque or record.is_opaque)
            if record.signature in signatures or rests_on_others or not touched.isdisjoint(record.touched):
                result.append(record)
                touched.update(record.touched)
                is_opaque |= record.is_opaque
        return result

    def forget(self, records: list[Record]) -> None:
        """Drop reverted records, and the data that only they needed."""
        dropped = {id(record) for record in records}
        self.records = [record for record in self.records if id(record) not in dropped]
        signatures = {record.signature for record in self.records}
        self.transformations = {k: v for k, v in self.transformations.items() if k in signatures}
        parents = {
            parent
            for record in self.records
            for change in record.modules
            for path in (change.at, *change.originals)
            for parent in parents_of(path)
        }
        self.child_order = {path: order for path, order in self.child_order.items() if path in parents}
        if not self.records:
            self.node_order = []
