"""The state of a node by names, from which the journal restores it in any copy of its graph."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fxlab.base.torch_private import FakeTensor
from fxlab.models.graph_modules.graph_state import FunctionName, picklable_target
from fxlab.values.pickling import for_protocol, picklable_meta


@dataclass(frozen=True)
class NodeName:
    """Stands for the node of a name in stored arguments."""

    name: str


_NO_INPUT = NodeName("")


class KeptMeta(dict[str, Any]):
    """A node's ``meta``: copies share its values, as copies of a graph do; pickles keep picklable entries."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "KeptMeta":
        return KeptMeta(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # Fake tensors cannot be pickled, and it would take long to try each.
        kept = {key: value for key, value in self.items() if not isinstance(value, FakeTensor)}
        return KeptMeta, (picklable_meta(kept, int(protocol)),)


@dataclass(frozen=True)
class NodeState:
    """A node at one moment."""

    name: str
    op: str
    target: Any
    args: Any
    kwargs: Any
    type: Any
    meta: KeptMeta = field(repr=False)

    @classmethod
    def of(cls, node: Node) -> "NodeState":
        """Write down a node."""
        args = torch.fx.map_arg(node.args, _to_name)
        kwargs = torch.fx.map_arg(node.kwargs, _to_name) if node.kwargs else {}
        return cls(node.name, node.op, node.target, args, kwargs, node.type, KeptMeta(node.meta))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        args, kwargs = (for_protocol(value, int(protocol)) for value in (self.args, self.kwargs))
        target = picklable_target(self.target)
        return _unpickled, (self.name, self.op, target, args, kwargs, self.type, self.meta)

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs, as often as it reads them."""
        names: list[str] = []
        map_aggregate((self.args, self.kwargs), lambda value: _note(value, names))
        return names

    def is_same_call(self, other: "NodeState") -> bool:
        """Tell whether two nodes do the same, on any inputs; in doubt they do not."""
        return (
            self.op == other.op
            and self.type == other.type
            and (self.target is other.target or same_argument(self.target, other.target))
            and same_argument(self._without_inputs, other._without_inputs)
        )

    def is_same(self, other: "NodeState") -> bool:
        """Tell whether two nodes of one name do the same to the same nodes, with the same metadata."""
        is_alike = self.name == other.name and self.inputs == other.inputs and self.is_same_call(other)
        return is_alike and not self.changed_meta(other)

    def changed_meta(self, other: "NodeState") -> tuple[str, ...]:
        """Return the entries of ``meta`` that differ in another state of the node."""
        return changed_entries(self.meta, other.meta)

    @property
    def _without_inputs(self) -> Any:
        def without(value: Any) -> Any:
            return _NO_INPUT if isinstance(value, NodeName) else value

        return map_aggregate((self.args, self.kwargs), without)

    def renamed(self, rename: Callable[[str], str]) -> "NodeState":
        """Return the state with other names for the nodes that it reads."""

        def to_name(value: Any) -> Any:
            return NodeName(rename(value.name)) if isinstance(value, NodeName) else value

        args, kwargs = (map_aggregate(value, to_name) for value in (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def restore(self, node: Node, nodes: dict[str, Node]) -> None:
        """Restore a node to this state; names are looked up in ``nodes``. Its ``meta`` stays."""
        args, kwargs = self._arguments(nodes)
        if node.op != self.op:  # each assignment re-indexes the node
            node.op = self.op
        if node.target is not self.target:
            node.target = self.target
        node.args = args
        node.kwargs = kwargs
        node.type = self.type

    def build(self, graph: Graph, nodes: dict[str, Node]) -> Node:
        """Build the node again, at the end of a graph, with its very name."""
        args, kwargs = self._arguments(nodes)
        free_name(graph, self.name)
        node = graph.create_node(self.op, self.target, args, kwargs, self.name, self.type)
        node.meta = dict(self.meta)
        return node

    def _arguments(self, nodes: dict[str, Node]) -> tuple[Any, Any]:
        def to_node(value: Any) -> Any:
            return nodes[value.name] if isinstance(value, NodeName) else value

        args, kwargs = (map_aggregate(value, to_node) for value in (self.args, self.kwargs))
        return args, kwargs


def changed_entries(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys whose entries differ in two dictionaries of metadata."""
    return tuple(
        key for key in {**a, **b} if key not in a or key not in b or not _is_same_entry(a[key], b[key])
    )


def _is_same_entry(a: Any, b: Any) -> bool:
    """Tell whether two entries are one object, or plain data that is equal."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, dict):
        return [*a] == [*b] and all(_is_same_entry(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_is_same_entry, a, b))
    # Symbolic sizes are not compared, which would add guards.
    return isinstance(a, bool | int | float | str) and a == b


def same_argument(a: Any, b: Any) -> bool:
    """Compare arguments of nodes; 1, 1.0 and True are different ones."""
    try:
        return bool(a == b) and repr(a) == repr(b)
    except Exception:  # tensors and the like have no one truth value: in doubt they differ
        return a is b


def _unpickled(name: str, op: str, target: Any, *others: Any) -> NodeState:
    found = target.find() if isinstance(target, FunctionName) else target
    return NodeState(name, op, found, *others)


def free_name(graph: Graph, name: str) -> None:
    """Free the name of a removed node for reuse in the graph."""
    graph._graph_namespace._used_names.discard(name)


def _to_name(node: Node) -> Any:
    return cast(Any, NodeName(node.name))


def _note(value: Any, names: list[str]) -> Any:
    if isinstance(value, NodeName):
        names.append(value.name)
    return value
