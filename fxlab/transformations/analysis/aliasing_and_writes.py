"""Alias and write analysis, for passes: whether a value is the same at two places of a graph.

Values that may share memory form one class: every operation is taken to return a view of its inputs unless it
is known to make a new tensor. That is coarse, and errs on the safe side.

A caller may pass one tensor for two inputs, views of one tensor, or a view of a buffer. So a write to an
input, a parameter or a buffer is one to all inputs. A transformed graph checks at run time that an input
which it writes is no view of a parameter or buffer (``RequireApart`` in ``parts.py``).
"""

import operator
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import HigherOrderOperator
from fxlab.models.graph_modules.bodies import bodies_called
from fxlab.operators import (
    computes,
    function_of,
    may_alias,
    operator_of,
    sets_global_state,
    written_arguments,
)
from fxlab.operators.node_info import attribute_at, known_result, returned_nodes
from fxlab.values.tensors import SYMBOLIC, storage_of

_IMMUTABLE = (int, float, complex, str, torch.Size, *SYMBOLIC)
"""Types that cannot be written in place and hold no memory of a tensor; a ``bool`` is an ``int``."""


class Writes:
    """The places at which the values of a graph are written, found once for the whole graph.

    Parameters
    ----------
    graph_module
        The module whose graph is read.
    """

    def __init__(self, graph_module: GraphModule) -> None:
        self._graph_module = graph_module
        self._position = {node: index for index, node in enumerate(graph_module.graph.nodes)}
        self._parent: dict[Node, Node] = {}
        self._state_changes: list[int] = []
        self._writes: dict[Node, list[int]] = defaultdict(list)
        self._writes_to_inputs: list[int] = []
        self._holders: dict[int, Node] = {}
        self._scan()

    def epoch(self, value: Node, reader: Node) -> tuple[int, int]:
        """Return how often a value was written, and the state of torch changed, before ``reader`` reads it.

        Two readers with the same epoch read the same.
        """
        position = self._position[reader]
        return bisect_left(self._writes_to(value), position), bisect_left(self._state_changes, position)

    def why_written(self, value: Node, first: Node, last: Node) -> Refusal:
        """Return why a value is not the same at two readers: a write to it, or to memory it may share."""
        low, high = self._position[first], self._position[last]
        places = (place for place in self._writes_to(value) if low < place < high)
        nodes = [*self._position]
        others = [read for place in places for read in written_inputs(nodes[place], self._graph_module)]
        other = next((read for read in others if self._class_of(read) is not self._class_of(value)), None)
        words = {"value": value.name, "first": first.name, "last": last.name}
        if other is None or any(self._class_of(read) is self._class_of(value) for read in others):
            return Reason.WRITTEN_IN_BETWEEN(**words)
        return Reason.MAY_BE_WRITTEN_IN_BETWEEN(**words, written=other.name)

    def same_state(self, node: Node, other: Node) -> bool:
        """Tell whether two nodes run with the same gradient, autocast and inference modes."""
        counts = (bisect_left(self._state_changes, self._position[each]) for each in (node, other))
        return next(counts) == next(counts)

    def is_written(self, value: Node) -> bool:
        """Tell whether a value, or one that may share memory with it, is written anywhere in the graph."""
        return bool(self._writes_to(value))

    def may_share_memory(self, value: Node, other: Node) -> bool:
        """Tell whether two values may share memory."""
        classes = {self._class_of(value), self._class_of(other)}
        is_outside = classes <= self._given | self._state and not classes.isdisjoint(self._given)
        return len(classes) == 1 or is_outside

    @cached_property
    def inputs_written(self) -> list[Node]:
        """The inputs that the graph writes itself, or through a view."""
        inputs = self._graph_module.graph.find_nodes(op="placeholder")
        return [node for node in inputs if self._class_of(node) in self._writes]

    @property
    def changes_state(self) -> bool:
        """Whether the graph changes the gradient, autocast or inference mode anywhere."""
        return bool(self._state_changes)

    def is_tensor_written(self, tensor: torch.Tensor) -> bool:
        """Tell whether the graph reads a parameter or buffer, and writes it or a tensor in its memory."""
        holder = self._holders.get(storage_of(tensor)) if tensor.layout is torch.strided else None
        return holder is not None and self.is_written(holder)

    @cached_property
    def returned(self) -> frozenset[Node]:
        """The classes of the returned values."""
        return frozenset(map(self._class_of, returned_nodes(self._graph_module.graph)))

    def is_returned(self, value: Node) -> bool:
        """Tell whether the graph returns a value, or one that may share memory with it."""
        return self._class_of(value) in self.returned

    @cached_property
    def _given(self) -> frozenset[Node]:
        """The classes of inputs."""
        return self._classes_of("placeholder")

    @cached_property
    def _state(self) -> frozenset[Node]:
        """The classes of parameters, buffers and other attributes."""
        return self._classes_of("get_attr")

    def _classes_of(self, op: str) -> frozenset[Node]:
        return frozenset(self._class_of(node) for node in self._graph_module.graph.find_nodes(op=op))

    def _writes_to(self, value: Node) -> list[int]:
        """Return the places of the writes to a value, in their order."""
        own = self._class_of(value)
        return self._writes_to_inputs if own in self._given else self._writes.get(own, [])

    def _scan(self) -> None:
        written: list[tuple[Node, int]] = []
        holders, sequences = self._holders, dict[Node, bool]()
        immutable = {node for node in self._position if isinstance(known_result(node), _IMMUTABLE)}
        for node, position in self._position.items():
            if sets_global_state(node):
                self._state_changes.append(position)
            writes = [value for value in written_inputs(node, self._graph_module) if value not in immutable]
            written.extend((value, position) for value in writes)
            is_read = node.op == "get_attr"  # each reading of an attribute is a node of its own
            value = attribute_at(self._graph_module, str(node.target), None) if is_read else None
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                self._join(node, holders.setdefault(storage_of(value), node))
            called = operator_of(node)
            if called is not None and called.returns_written:  # ``x.add_(y)`` is a view of ``x`` alone
                shared = writes
            elif writes or _may_return_view(node, self._graph_module, sequences):
                shared = node.all_input_nodes
            else:
                continue
            for value in shared:
                if value not in immutable:
                    self._join(node, value)
        writes_to_inputs = set[int]()
        for node, position in self._position.items():
            if own := self._own_writes(node):
                writes_to_inputs.add(position)
                written.extend((holders[memory], position) for memory in own & holders.keys())
        for value, position in sorted(written, key=operator.itemgetter(1)):
            self._writes[self._class_of(value)].append(position)
        for written_class in self._writes.keys() & (self._given | self._state):
            writes_to_inputs.update(self._writes[written_class])
        self._writes_to_inputs = sorted(writes_to_inputs)

    def _own_writes(self, node: Node) -> set[int]:
        """Return the memory of a module that it may write itself, as batch norms in training do."""
        if node.op != "call_module":
            return set()
        module = self._graph_module.get_submodule(str(node.target))
        if not any(_may_write(part) or keeps_state(part) for part in module.modules()):
            return set()
        tensors = (*module.parameters(), *module.buffers())
        return {storage_of(tensor) for tensor in tensors if tensor.layout is torch.strided}

    def _class_of(self, node: Node) -> Node:
        root = node
        while (parent := self._parent.get(root)) is not None:
            root = parent
        while node is not root:  # shorten the way for the next one
            self._parent[node], node = root, self._parent[node]
        return root

    def _join(self, a: Node, b: Node) -> None:
        a, b = self._class_of(a), self._class_of(b)
        if a is not b:
            self._parent[a] = b


def may_return_view(node: Node, graph_module: GraphModule) -> bool:
    """Tell whether the result of a node may share memory with one of its inputs."""
    return _may_return_view(node, graph_module) or bool(written_inputs(node, graph_module))


def _may_return_view(
    node: Node, graph_module: GraphModule, sequences: dict[Node, bool] | None = None
) -> bool:
    """Tell whether a node that writes nothing in place may return a view; ``sequences`` are those found."""
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        operator = function_of(type(module))
        return operator is None or operator.may_alias or bool(getattr(module, "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    if may_alias(node):
        return True
    return computes(node) in ("add", "mul") and _may_be_sequence(node, {} if sequences is None else sequences)


def _may_be_sequence(node: Node, known: dict[Node, bool]) -> bool:
    """Tell whether a value may be a list or tuple, as a sum or product of some, which holds their tensors."""
    pending = [node]  # no recursion: thousands of sums may follow one another
    while pending:
        last = pending[-1]
        unknown = [read for read in _deciding(last) if isinstance(read, Node) and read not in known]
        if not unknown:
            known[last] = _is_sequence(last, known)
            pending.pop()
        pending += unknown
    return known[node]


def _deciding(node: Node) -> tuple[Any, ...]:
    """Return the operands by which a node of unknown result is a sequence or not."""
    if known_result(node) is not None:
        return ()
    if computes(node) in ("add", "mul"):
        return (*node.args, *node.kwargs.values())
    return node.args[:1] if computes(node) == "getitem" and isinstance(node.args[1], slice) else ()


def _is_sequence(node: Node, known: Mapping[Node, bool]) -> bool:
    result, name = known_result(node), computes(node)
    if result is not None:  # ShapeProp's is a tuple itself
        return isinstance(result, tuple | list) and not hasattr(result, "dtype")
    are = (known[v] if isinstance(v, Node) else isinstance(v, tuple | list) for v in _deciding(node))
    if name == "add":
        return all(is_one or _is_unknown_input(v) for is_one, v in zip(are, _deciding(node), strict=True))
    called = operator_of(node)
    return any(are) or (called is not None and called.returns_sequence)


def _is_unknown_input(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "placeholder" and known_result(value) is None


def written_inputs(node: Node, graph_module: GraphModule) -> list[Node]:
    """Return the inputs that a node may write in place; a higher-order operator writes if its bodies do."""
    if node.op == "call_function" and isinstance(node.target, HigherOrderOperator):
        bodies = bodies_called(node, graph_module)
        is_of_torch = type(node.target).__module__.startswith("torch.")
        called = ((each, body.module) for body in bodies for each in body.module.graph.nodes)
        may_write = not is_of_torch or not bodies or any(written_inputs(*each) for each in called)
        return node.all_input_nodes if may_write else []
    if node.op == "call_module":
        module = graph_module.get_submodule(str(node.target))
        return node.all_input_nodes if any(map(_may_write, module.modules())) else []
    return written_arguments(node) if node.op in ("call_method", "call_function") else []


def keeps_state(module: nn.Module) -> bool:
    """Tell whether a module of torch may write its own parameters or buffers."""
    has_statistics = bool(module._buffers) and module.training
    return has_statistics or getattr(module, "max_norm", None) is not None


def _may_write(module: nn.Module) -> bool:
    """Tell whether a module may write its inputs; one that is not torch's, or has hooks, may do anything."""
    everywhere = torch.nn.modules.module
    hooks = (
        *(module._forward_hooks, module._forward_pre_hooks),
        *(everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks),
    )
    is_own = not type(module).__module__.startswith("torch.")
    return is_own or any(hooks) or bool(getattr(module, "inplace", False))


def why_not_the_same(readers: Mapping[Node, Node], last: Node, writes: Writes) -> Refusal | None:
    """Return why values may have changed between their first readers and ``last``; ``None`` if not."""
    for value, reader in readers.items():
        between = {"first": reader.name, "last": last.name}
        if not writes.same_state(reader, last):
            return Reason.MODE_CHANGES_IN_BETWEEN(**between)
        if writes.epoch(value, reader) != writes.epoch(value, last):
            return writes.why_written(value, reader, last)
    return None


def first_readers(values: Iterable[Node | None], nodes: Collection[Node]) -> dict[Node, Node]:
    """Return for each value the first of some nodes that reads it."""
    return {
        value: min(node for node in nodes if value in node.all_input_nodes)
        for value in dict.fromkeys(values)
        if value is not None
    }


def why_of_use_elsewhere(inner: Iterable[Node], own: Collection[Node], writes: Writes) -> Refusal | None:
    """Return why inner nodes of a pattern cannot be erased; ``None`` if only its ``own`` ones need them."""
    for value in inner:
        if not all(user in own for user in value.users):
            return Reason.OTHER_USERS(value=value.name)
        if writes.is_written(value):
            return Reason.WRITTEN_IN_PLACE(value=value.name)
    return None
