"""Collectives, the calls by which a graph exchanges tensors with other processes: traces and costs ask."""

import inspect
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from fxlab.base.torch_private import OpOverload, OpOverloadPacket, process_group
from fxlab.base.units import with_unit
from fxlab.base.words import counted
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.operators import computes, describes, may_alias, moves_elements
from fxlab.operators.node_info import attribute_at, known_result
from fxlab.operators.operator import is_written
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import known_number

_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor", "symm_mem"})
_PACKAGE = "torch.distributed.distributed_c10d"
_GROUP_ARGUMENTS = ("group_name", "process_group", "group")
_KIND = re.compile(
    r"all_?gather|reduce_scatter|all_?reduce|(?:shard_dim_)?all_?to_?all|broadcast|barrier|scatter|gather"
    r"|reduce|send|recv|batch_p2p"
)
_UNNAMED = ("", "undefined", "default_pg")
"""Descriptions of process groups that are not distinctive."""


@dataclass(frozen=True)
class Group:
    """A process group, as far as it is known here."""

    name: str
    """Torch's name of it, which graphs use."""
    size: int | None = None
    ranks: tuple[int, ...] = ()
    """Empty if the group is not one of this process."""
    title: str = ""

    def __str__(self) -> str:
        return self.title or f"group {self.name}"


@dataclass(frozen=True)
class Collective:
    """A call that starts an exchange with other processes, and the nodes that wait for it."""

    start: fx.Node
    kind: str
    """``"all_gather"``, ``"reduce_scatter"``, ``"all_reduce"``, ``"all_to_all"``, ``"broadcast"``, ..."""
    reduction: str
    """``"sum"``, ``"avg"``, ...; empty for those that only move elements."""
    group: Group
    waits: tuple[fx.Node, ...]
    """The calls of ``wait_tensor``; without one, the first node that reads the result."""

    @cached_property
    def bytes(self) -> int:
        """The bytes of its inputs or of its result, whichever is more."""
        given = sum(tensor_bytes(known_result(node)) for node in self.start.all_input_nodes)
        return max(given, tensor_bytes(known_result(self.start)))

    @cached_property
    def meanwhile(self) -> tuple[fx.Node, ...]:
        """The computing nodes between the start and the first wait."""
        if not self.waits:
            return ()
        found, node = [], self.start.next
        while node is not self.waits[0]:
            # Views and sizes do not keep a device busy while it runs.
            is_work = node.op.startswith("call_") and _called(node) is None
            if is_work and not (is_view(node) or describes(node)):
                found.append(node)
            node = node.next
        return tuple(found)

    @property
    def words(self) -> str:
        """The kind, reduction, group and size in words."""
        ranks = "" if self.group.size is None else f", {counted(self.group.size, 'rank')}"
        kind = f"{self.kind} ({self.reduction})" if self.reduction else self.kind
        return f"{kind} over {self.group}{ranks}, {with_unit(self.bytes, 'B')}"


def is_wait(node: fx.Node) -> bool:
    """Tell whether a node waits for a collective."""
    called = _called(node)
    return called is not None and called.name == "wait_tensor"


def collective_kind(node: fx.Node) -> str:
    """Return the kind of a collective that a node starts; empty if it starts none."""
    called = _called(node)
    return "" if called is None else _kind(called)


def exchanges(node: fx.Node) -> bool:
    """Tell whether a node starts a collective, or waits for one."""
    return bool(collective_kind(node)) or is_wait(node)


def exchanges_anything(graph_module: fx.GraphModule) -> bool:
    """Tell whether a graph or a body that it calls has collectives."""
    return any(exchanges(node) for module in graphs_of(graph_module).values() for node in module.graph.nodes)


def is_handle(value: object) -> bool:
    """Tell whether a value stands for a collective in flight."""
    return hasattr(dist, "Work") and isinstance(value, dist.Work)


def collectives_of(graph: fx.Graph) -> list[Collective]:
    """Return the collectives of a graph, in its order."""
    starts = [node for node in graph.nodes if collective_kind(node)]
    if not starts:
        return []
    groups: dict[str, Group] = {}
    position = {node: number for number, node in enumerate(graph.nodes)}
    result = []
    for start in starts:
        known = _group_of(start)
        group = groups.setdefault(known.name, known)
        waits, operator = _waits(start, position), _given(start, "reduce_op", "reduceOp", "red_op", "op")
        is_known = operator is not None and not isinstance(operator, fx.Node)
        reduction = str(operator).rpartition(".")[2].lower() if is_known else ""
        result.append(Collective(start, collective_kind(start), reduction, group, waits))
    return result


def tensor_bytes(value: Any) -> int:
    """Return the bytes of the tensors in a value; symbolic sizes count as in the traced run.

    Tensors of a size that depends on data are left out.
    """
    tensors = (tensor for _, tensor in tensors_inside(value))
    factors: Any = ((tensor.dtype.itemsize, *map(known_number, tensor.shape)) for tensor in tensors)
    return sum(prod(each) for each in factors if str not in map(type, each))


@dataclass(frozen=True)
class _Called:
    """An operator or a function for communication."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    """Names and defaults."""
    is_python: bool
    writes: bool


@lru_cache(maxsize=1024)
def _found(target: Any) -> _Called | None:
    if getattr(target, "__module__", "") == _PACKAGE:
        parameters = inspect.signature(target).parameters.values()
        return _Called(target.__name__, tuple((p.name, p.default) for p in parameters), True, True)
    if isinstance(target, OpOverloadPacket):
        target = getattr(target, "default", None)
    if not isinstance(target, OpOverload) or target.namespace not in _NAMESPACES:
        return None
    schema = target._schema
    writes = any(map(is_written, schema.arguments))
    name = schema.name.partition("::")[2]
    arguments = tuple((a.name, a.default_value) for a in schema.arguments)
    return _Called(name, arguments, False, writes or name.endswith("_"))


def _called(node: fx.Node) -> _Called | None:
    """Return the target of a node, if it is an operator or a function for communication."""
    return _found(node.target) if node.op == "call_function" else None


@lru_cache(maxsize=1024)
def _kind(called: _Called) -> str:
    word = _KIND.search(called.name)
    if word is None or not any(name in _GROUP_ARGUMENTS for name, _ in called.arguments):
        return ""
    kind = word[0].removeprefix("shard_dim_")
    for whole in ("all_gather", "all_reduce", "all_to_all"):
        if kind.replace("_", "") == whole.replace("_", ""):
            return whole
    return kind


def _given(node: fx.Node, *names: str) -> Any:
    """Return the argument of a call by one of several names."""
    called = _called(node)
    for place, (name, default) in enumerate(() if called is None else called.arguments):
        if name in names:
            if name in node.kwargs:
                return node.kwargs[name]
            return node.args[place] if place < len(node.args) else default
    return None


def _group_of(node: fx.Node) -> Group:
    given = _given(node, "group_name", "process_group", "group")
    if given is None:
        given = dist.group.WORLD if dist.is_initialized() else "0"
    size = _given(node, "group_size")
    size = size if isinstance(size, int) else None
    if isinstance(given, fx.Node):
        root = node.graph.owning_module
        held = attribute_at(root, str(given.target), None) if root is not None else None
        given = _unboxed(held if given.op == "get_attr" else known_result(given)) or given.name
    name = str(getattr(given, "group_name", given))
    group = given if hasattr(given, "group_desc") else process_group(name)
    if group is None:
        return Group(name, size)
    title = str(getattr(group, "group_desc", "") or "")
    return Group(
        name,
        int(group.size()),
        tuple(dist.get_process_group_ranks(group)),
        "all ranks" if title == "default_pg" else "" if title in _UNNAMED else title.removeprefix("mesh_"),
    )


def _unboxed(value: Any) -> Any:
    """Return the process group of an object of TorchScript."""
    if not isinstance(value, torch.ScriptObject):
        return value
    try:
        return dist.ProcessGroup.unbox(value)
    except (AttributeError, RuntimeError):
        return None


def _waits(start: fx.Node, position: dict[fx.Node, int]) -> tuple[fx.Node, ...]:
    called = _called(start)
    if called is None or called.is_python:  # which returns after the wait
        return ()
    waits, readers = set[fx.Node](), set[fx.Node]()
    pending = [start]
    # A collective in place is waited for by the tensor that it writes.
    if called.writes:
        pending += start.all_input_nodes
    seen = set(pending)
    while pending:
        for user in pending.pop().users:
            if user in seen or position[user] <= position[start]:
                continue
            seen.add(user)
            if is_wait(user):
                waits.add(user)
            elif not exchanges(user) and (_called(user) is not None or is_view(user)):
                pending.append(user)
            else:
                readers.add(user)
    if waits:
        return tuple(sorted(waits, key=position.__getitem__))
    return tuple(sorted(readers, key=position.__getitem__)[:1])


def is_view(node: fx.Node) -> bool:
    """Tell whether a call only returns a part or a view of its argument."""
    return computes(node) == "getitem" or (moves_elements(node) and may_alias(node))
