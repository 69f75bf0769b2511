"""A graph as a tree of module calls, from which the views of pictures and pages are cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from torch import fx, nn

from fxlab.base.exchanged import cached_property
from fxlab.base.garbage import without_collecting
from fxlab.drawing.hierarchy import folding
from fxlab.drawing.hierarchy.auxiliary_nodes import AuxiliaryNodes
from fxlab.drawing.hierarchy.columns import BACK, FORWARD, UPDATE, columns_of, fold_loose
from fxlab.drawing.hierarchy.placement import BACKWARD, CALLS, RECOMPUTED, Placement
from fxlab.operators.node_info import elements_of_parameter, parameters_of, short_name

_WITH_PARAMETERS = ("call_module", "get_attr")


class Leaf(NamedTuple):
    """One node that is drawn as a box, with the ``get_attr`` nodes folded into it."""

    # A tuple, as there is one for each node: a frozen dataclass takes four times as long to make.

    name: str
    node: fx.Node
    path: str
    """Path of the group that it lies in."""
    start: int
    """Its position in the order of the tree; a group's leaves are consecutive."""
    attributes: tuple[str, ...] = ()
    """Names of the ``get_attr`` nodes that are drawn with this node."""
    owner: str = ""
    """Path of the module call that consists of this node alone, if there is one."""
    owner_class: str = ""
    bookkeeping: str = ""
    """The purpose of the node, if it only serves others: ``"sizes"``, ``"checks"``, ``"mask"`` and so on."""

    @property
    def stop(self) -> int:
        """The position after it, as of a group."""
        return self.start + 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all nodes that the box stands for."""
        return (self.name, *self.attributes)

    @property
    def id(self) -> str:
        """Id of the box: derived from the name, the same in every stage of a session, safe in any markup."""
        return f"n-{_digest(self.name)}"


@dataclass(frozen=True, slots=True)
class Group:
    """A module call, a run of equal ones, a stretch of a long list, or nodes that only serve others."""

    path: str
    """Unique: a module path (``encoder.layer.0``), with ``@1`` for a second call; ``""`` is the root;
    ``encoder.layer.[0-11]`` is a run of repeats."""
    label: str
    """The short name: ``attention``, ``layer.0``, ``layer 0-11``."""
    kind: folding.GroupKind
    class_name: str
    children: tuple[Group | Leaf, ...] = field(repr=False)
    start: int
    stop: int
    """Positions of its leaves: ``range(start, stop)``."""
    nodes: int
    """How many nodes it holds, ``get_attr`` nodes included."""
    parameters: int
    """How many parameter elements its nodes use."""
    members: int = 1
    """Of a run: how many equal blocks."""

    @property
    def id(self) -> str:
        """Id of the box or cluster: derived from the path."""
        return f"g-{_digest(self.path)}"

    @property
    def host(self) -> Leaf | None:
        """Of bookkeeping: the input or output that it is drawn with, if there is one."""
        if self.kind != "bookkeeping":
            return None
        ends = (self.children[0], self.children[-1])
        return next((end for end in ends if isinstance(end, Leaf) and not end.bookkeeping), None)


@dataclass(frozen=True)
class Hierarchy:
    """A graph's tree of groups, with indices for quick look-ups by views."""

    root: Group
    leaves: tuple[Leaf, ...] = field(repr=False)
    """All leaves by position."""
    modules: dict[str, nn.Module] = field(repr=False)
    """The modules of the graph by path."""
    edge_sources: folding.Integers = field(repr=False)
    edge_targets: folding.Integers = field(repr=False)
    """Positions of the leaves that each edge joins."""
    asides: folding.Integers = field(repr=False)
    """Which edges carry no data, but sizes, or values to check."""
    names: tuple[str, ...] = field(repr=False)
    """The names of all nodes in the order of the leaves."""
    name_starts: list[int] = field(repr=False)
    """Where the names of each leaf start, and where the last one's stop."""
    columns: tuple[int, ...] = ()
    """Of a training step: the column of each child of the root."""
    returned: dict[int, str] = field(default_factory=dict, repr=False)
    """Of a training step: position of a leaf -> the name of its result, told by a box, not a line."""

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Every group by path, parents before children."""
        return {group.path: group for group in _walk(self.root)}

    @cached_property
    def parents(self) -> dict[str, str]:
        """Path of a group -> path of the group around it."""
        return {
            child.path: group.path
            for group in self.groups.values()
            for child in group.children
            if isinstance(child, Group)
        }

    @cached_property
    def position_of(self) -> dict[str, int]:
        """Node name -> position of the leaf that draws it."""
        return {name: leaf.start for leaf in self.leaves for name in leaf.names}

    @cached_property
    def told(self) -> folding.Integers:
        """Edges that are words on a box, by their places."""
        if not self.returned:
            return np.array([], dtype=np.int64)
        is_output = [leaf.node.op == "output" for leaf in self.leaves]
        is_returned = np.isin(self.edge_sources, list(self.returned))
        return np.flatnonzero(is_returned & np.array(is_output)[self.edge_targets])

    @cached_property
    def returned_at(self) -> list[int]:
        """Positions of the results of a step."""
        return sorted(self.returned)

    @cached_property
    def recomputed_before(self) -> list[int]:
        """Numbers of leaves that a step computes again, before each position and in all."""
        is_again = [RECOMPUTED in leaf.path or RECOMPUTED in leaf.owner for leaf in self.leaves]
        return list(accumulate(is_again, initial=0))

    @cached_property
    def partners(self) -> dict[str, Group | Leaf]:
        """Id of a box of a step's forward pass -> that of its backward pass."""
        return self._alike(FORWARD, BACK)

    @cached_property
    def updates(self) -> dict[str, Group | Leaf]:
        """Id of a box of a step's backward pass -> that of the optimizer for the same module."""
        return self._alike(BACK, UPDATE)

    @cached_property
    def opens_with(self) -> dict[str, str]:
        """Path of a group -> that of the forward or backward pass of the same module, which opens with it."""
        forward = [group for group in self.groups.values() if isinstance(self.partners.get(group.id), Group)]
        both = [(group.path, self.partners[group.id].path) for group in forward]
        return dict(both) | {backward: path for path, backward in both}

    def column(self, number: int) -> list[Group | Leaf]:
        """Return the children of the root in a column."""
        return [child for child, at in zip(self.root.children, self.columns, strict=True) if at == number]

    def _alike(self, left: int, right: int) -> dict[str, Group | Leaf]:
        """Return the boxes of two columns that show the same module in the same place."""
        if not self.columns:
            return {}
        found: dict[str, Group | Leaf] = {}
        others = self.column(right)
        if right == UPDATE:
            others = [item for group in others if isinstance(group, Group) for item in group.children]
        pending: list[tuple[Sequence[Group | Leaf], Sequence[Group | Leaf]]] = [(self.column(left), others)]
        while pending:
            here, there = pending.pop()
            by_name = {name: item for item in reversed(there) if (name := _module_name(item))}
            for item in here:
                name = _module_name(item)
                name = name + BACKWARD if right == BACK else name.removesuffix(BACKWARD)
                if (other := by_name.get(name)) is None:
                    continue
                found[item.id] = other
                if isinstance(item, Group) and isinstance(other, Group):
                    pending.append((item.children, other.children))
        return found

    def names_in(self, item: Group | Leaf) -> tuple[str, ...]:
        """Return the names of the nodes that a box draws."""
        return self.names[self.name_starts[item.start] : self.name_starts[item.stop]]

    def only_serves(self, group: Group) -> bool:
        """Return whether all nodes in a group only serve others."""
        return all(self.leaves[position].bookkeeping for position in range(group.start, group.stop))

    def ancestors(self, node_name: str) -> list[str]:
        """Return the paths of the groups around a node, outermost first, without the root."""
        return self.around(self.leaves[self.position_of[node_name]].path)

    def around(self, path: str) -> list[str]:
        """Return the paths of the groups around a group and its own, outermost first, without the root."""
        chain = []
        while path:
            chain.append(path)
            path = self.parents[path]
        return chain[::-1]


def build_hierarchy(graph_module: fx.GraphModule, marks: folding.Marks = MappingProxyType({})) -> Hierarchy:
    """Arrange the nodes of a graph by the module calls that made them.

    Module calls are read from ``node.meta["nn_module_stack"]``; without it, from the targets of
    ``call_module`` and ``get_attr`` nodes; nodes that have neither go to the group that holds both their
    inputs and their users. Equal consecutive blocks (``layer.0`` to ``layer.11``) are folded into a run,
    which opens as its first block and one box for all others; a block whose ``marks`` differ stands apart.
    """
    with without_collecting():
        placement = Placement(graph_module)
        root, folded = _plant(graph_module.graph, placement)
        # First, as later steps count and compare the children of groups.
        folding.hoist_single_nodes(root)
        found = AuxiliaryNodes(graph_module, placement.modules)
        folding.fold_bookkeeping(root, found)
        wiring = folding.fold_repeats(root, placement.modules, marks)
        folding.fold_equal_nodes(root, placement.modules)
        folding.fold_lists_of_blocks(root)
        folding.segment_long_lists(root)
        columns = fold_loose(root, columns_of(root, placement.backward))
        freezer = _Freezer(folded, placement.modules, found.kinds)
        frozen, _ = freezer.group(root)
        leaves = tuple(freezer.leaves)
        sources, targets = wiring.edges([leaf.node for leaf in leaves])
        serves = np.array([leaf.bookkeeping != "" for leaf in leaves], dtype=bool)
        asides = [
            edge
            for edge in np.flatnonzero(serves[sources] | serves[targets]).tolist()
            if found.is_aside(leaves[sources[edge]].node, leaves[targets[edge]].node)
        ]
        return Hierarchy(
            root=frozen,
            leaves=leaves,
            modules=placement.modules,
            edge_sources=sources,
            edge_targets=targets,
            asides=np.array(asides, dtype=np.int64),
            names=tuple(freezer.names),
            name_starts=freezer.name_starts,
            columns=columns,
            returned=_returned(frozen, leaves, columns) if columns else {},
        )


def _plant(graph: fx.Graph, placement: Placement) -> tuple[folding.Draft, dict[fx.Node, list[fx.Node]]]:
    """Build the raw tree; also return which ``get_attr`` nodes are drawn with which reader."""
    root = folding.Draft(path="", kind="root", class_name="")
    taken: dict[str, int] = {"": 1}
    drafts: dict[tuple[str, ...], folding.Draft] = {(): root}
    folded: dict[fx.Node, list[fx.Node]] = {}
    by_chain: dict[int, folding.Draft] = {}
    # A parameter that nothing reads is drawn with some node of its module.
    held = [node for node in graph.nodes if node.op == "get_attr" or node in placement.weights]
    unread = any(not node.users for node in held)
    hosts = {placement.chains[n]: n for n in reversed(graph.nodes) if n.op in CALLS} if unread else {}
    for node in graph.nodes:
        if (node.op == "get_attr" or node in placement.weights) and (
            host := next((user for user in node.users if user.op not in ("output", "get_attr")), None)
            or hosts.get(placement.chains[node])
        ) is not None:
            folded.setdefault(host, []).append(node)
            continue
        chain = placement.chains[node]
        draft = by_chain.get(id(chain))
        if draft is None:
            draft = root
            key: tuple[str, ...] = ()
            for call in chain:
                key = (*key, call.path)
                if key not in drafts:
                    # A module that is called twice has two groups, each with a path of its own.
                    number = taken[call.path] = taken.get(call.path, 0) + 1
                    path = call.path if number == 1 else f"{call.path}~{number}"
                    drafts[key] = folding.Draft(path, "module", call.class_name, call.label)
                    draft.children.append(drafts[key])
                draft = drafts[key]
            by_chain[id(chain)] = draft
        draft.children.append(node)
    return root, folded


def _returned(root: Group, leaves: Sequence[Leaf], columns: Sequence[int]) -> dict[int, str]:
    """Return the results of a step from its backward pass and its optimizer, and its new buffers."""
    output = next(leaf.node for leaf in reversed(leaves) if leaf.node.op == "output")
    results = output.args[0]
    names = {node: str(name) for name, node in results.items()} if isinstance(results, Mapping) else {}
    read, found = set(output.all_input_nodes), dict[int, str]()
    for child, column in zip(root.children, columns, strict=True):
        for leaf in leaves[child.start : child.stop]:
            if leaf.node not in read or leaf.node.op == "output":
                continue
            name = names.get(leaf.node, "")
            if column in (BACK, UPDATE) or name.startswith("new "):
                found[leaf.start] = name or ("gradient" if column == BACK else "new value")
    return found


def _module_name(item: Group | Leaf) -> str:
    """Return the name of the module that a box shows, which boxes of its other passes have as well."""
    if isinstance(item, Group):
        return "" if item.kind == "bookkeeping" else item.label
    name = short_name(item.owner) if item.owner else ""
    return "" if name == item.name else name


class _Freezer:
    """Makes groups and leaves of drafts, in the order of the tree."""

    def __init__(
        self,
        folded: dict[fx.Node, list[fx.Node]],
        modules: dict[str, nn.Module],
        bookkeeping: dict[fx.Node, str],
    ) -> None:
        self._folded, self._modules, self._bookkeeping = folded, modules, bookkeeping
        self.leaves: list[Leaf] = []
        self.names: list[str] = []
        self.name_starts = [0]

    def group(self, draft: folding.Draft) -> tuple[Group, dict[int, int]]:
        """Return a group, and the elements of each parameter that its nodes use."""
        start = len(self.leaves)
        children: list[Group | Leaf] = []
        sizes: dict[int, int] = {}
        for child in draft.children:
            if isinstance(child, folding.Draft):
                group, inner = self.group(child)
                children.append(group)
                sizes |= inner
                continue
            attributes = self._folded.get(child, [])
            children.append(self._leaf(child, draft, attributes))
            for node in (child, *attributes) if attributes else (child,):
                if node.op == "placeholder":
                    sizes[id(node)] = elements_of_parameter(node)
                elif node.op in _WITH_PARAMETERS:
                    sizes |= {id(p): p.numel() for p in parameters_of(node, self._modules)}
        group = Group(
            path=draft.path,
            label=draft.label,
            kind=draft.kind,
            class_name=draft.class_name,
            children=tuple(children),
            start=start,
            stop=len(self.leaves),
            nodes=self.name_starts[-1] - self.name_starts[start],
            parameters=sum(sizes.values()),
            members=draft.members,
        )
        return group, sizes

    def _leaf(self, node: fx.Node, draft: folding.Draft, attributes: list[fx.Node]) -> Leaf:
        owner = draft.owners.get(node)
        leaf = Leaf(
            node.name,
            node,
            draft.path,
            len(self.leaves),
            tuple([attribute.name for attribute in attributes]) if attributes else (),
            owner.path if owner else "",
            owner.class_name if owner else "",
            self._bookkeeping.get(node, ""),
        )
        self.leaves.append(leaf)
        self.names += leaf.names
        self.name_starts.append(len(self.names))
        return leaf


def _walk(group: Group) -> Iterator[Group]:
    pending = [group]
    while pending:
        group = pending.pop()
        yield group
        pending.extend(child for child in reversed(group.children) if isinstance(child, Group))


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
