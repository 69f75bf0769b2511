"""Facts about a whole graph module, computed once for a pass, so that each candidate costs a look-up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.models.graph_modules.bodies import bodies_called
from fxlab.models.graph_modules.parts import is_container
from fxlab.operators import casts, moves_elements, operator_called, rounds
from fxlab.operators.node_info import attribute_at
from fxlab.transformations.analysis.aliasing_and_writes import Writes
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype, numbers
from fxlab.transformations.journal.module_tree import find_module, parents_of, split_path
from fxlab.values.tensors import storage_of


class GraphFacts:
    """Indexes of a graph module at the beginning of a pass.

    Parameters
    ----------
    graph_module
        The module.
    """

    prefix: str = ""
    """The prefix of names of nodes of a body: ``"true_graph_0/"``."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.graph_module = graph_module
        self._around = graph_module

    @classmethod
    def of_body(cls, body: GraphModule, prefix: str, around: GraphModule) -> GraphFacts:
        """Return the facts of a graph that a node calls; ``prefix`` begins the names of its nodes."""
        facts = cls(body)
        facts.prefix, facts._around = prefix, around
        return facts

    @property
    def is_body(self) -> bool:
        """Whether a node of another graph calls the graph."""
        return self._around is not self.graph_module

    def module(self, node: Node) -> nn.Module | None:
        """Return the module that a node calls; ``None`` for a node that calls none."""
        return find_module(self.graph_module, str(node.target)) if node.op == "call_module" else None

    def attribute(self, node: Node) -> Any:
        """Return the attribute that a node reads from the module; ``None`` if it reads none, or is broken.

        An input of a body may be a tensor of the model, which the call reads and passes on.
        """
        reading = self.reading(node)
        owner = self.graph_module if reading is node else self._around
        return None if reading is None else attribute_at(owner, str(reading.target), None)

    def reading(self, node: Node) -> Node | None:
        """Return the node that reads an attribute: itself, or one of the graph around that passes it on."""
        if node.op == "placeholder" and self.passing is not None:
            return self.passing.readings.get(node)
        return node if node.op == "get_attr" else None

    @cached_property
    def passing(self) -> Passing | None:
        """The passing of the model's tensors to the graph, if it is a body of the outermost graph."""
        return passing(self.graph_module, self._around) if self.is_body else None

    @cached_property
    def around(self) -> GraphFacts:
        """The facts about the outermost graph."""
        return GraphFacts(self._around)

    def tensor(self, node: Node) -> torch.Tensor | None:
        """Return the tensor that a node reads, or the known result of an input of fixed sizes."""
        value = self.attribute(node)
        if value is None and node.op == "placeholder":
            value = node.meta.get("val")
            is_fixed = isinstance(value, torch.Tensor) and all(type(size) is int for size in value.shape)
            value = value if is_fixed else None
        return value if isinstance(value, torch.Tensor) else None

    @cached_property
    def why_body_stays(self) -> Refusal | None:
        """Why a body that writes its inputs is left alone: calls may pass one tensor twice."""
        inputs = self.graph_module.graph.find_nodes(op="placeholder") if self.is_body else ()
        written = next((node for node in inputs if self.writes.is_written(node)), None)
        return None if written is None else Reason.BODY_WRITES_INPUTS(value=f"{self.prefix}{written.name}")

    @cached_property
    def unused_readings(self) -> dict[str, list[Node]]:
        """The ``get_attr`` nodes that nothing reads, by the path of the module whose attribute each names."""
        found: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph_module.graph.find_nodes(op="get_attr"):
            if not node.users:
                found[split_path(str(node.target))[0]].append(node)
        return found

    @cached_property
    def calls(self) -> Counter[str]:
        """The number of calls of the module at each path, and of nodes that pass it to a call."""
        nodes = self.graph_module.graph.nodes
        return Counter(str(node.target) for node in nodes if node.op == "call_module" or self._hands_on(node))

    def _hands_on(self, node: Node) -> bool:
        module = self.attribute(node) if node.op == "get_attr" else None
        return isinstance(module, nn.Module) and not isinstance(module, GraphModule)

    @cached_property
    def paths(self) -> dict[nn.Module, list[str]]:
        """The paths of each module; more than one for a module that is shared."""
        paths: dict[nn.Module, list[str]] = defaultdict(list)
        for path, module in self._modules_around(remove_duplicate=False):
            paths[module].append(path)
        return paths

    def _modules_around(self, *, remove_duplicate: bool) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules of the outermost module, those of the graph by their paths in it."""
        own = {id(module): path for path, module in self.graph_module.named_modules()}
        paths = Counter[int]()
        for path, module in self._around.named_modules(remove_duplicate=remove_duplicate):
            paths[id(module)] += 1
            is_own = not self.is_body or (id(module) in own and paths[id(module)] == 1)
            yield (path if not self.is_body else own[id(module)] if is_own else f"/{path}"), module

    @cached_property
    def writes(self) -> Writes:
        """The places where values of the graph are written."""
        return Writes(self.graph_module)

    @cached_property
    def numbers(self) -> set[Node]:
        """The nodes whose results are known to be Python numbers or sizes."""
        return numbers(self.graph_module.graph)

    @cached_property
    def rounding_readers(self) -> dict[Node, Node]:
        """For each value that is later rounded to integers, a node that does it."""
        return rounding_readers(self.graph_module)

    @cached_property
    def has_global_hooks(self) -> bool:
        """Whether hooks are registered for all modules."""
        hooks, kinds = torch.nn.modules.module, ("forward", "forward_pre", "backward", "backward_pre")
        return any(getattr(hooks, f"_global_{kind}_hooks", None) for kind in kinds)

    def called_parent(self, path: str) -> str | None:
        """Return the path of a parent that is called itself, and so reads the module at ``path`` unseen."""
        return next((parent for parent in parents_of(path)[1:] if parent in self.calls), None)

    def foreign_parent(self, path: str) -> nn.Module | None:
        """Return a parent that is not one of torch's bare containers, and so may use the module itself."""
        for parent_path in parents_of(path)[1:]:
            parent = find_module(self.graph_module, parent_path)
            if parent is not None and not is_container(parent):
                return parent
        return None

    def holders(self, tensor: torch.Tensor, path: str, name: str) -> list[str]:
        """Return the holders of a tensor's memory other than ``name`` of the module at ``path``."""
        own = path, name
        others = [entry for entry in self._memory.get(storage_of(tensor), ()) if entry[:2] != own]
        return [
            f"{holder}.{attribute}" if attribute else holder
            for holder, attribute, other in others
            if _overlap(tensor, other)
        ]

    @cached_property
    def _memory(self) -> dict[int, list[tuple[str, str, torch.Tensor]]]:
        """The tensors of each storage, with their holders: the path of a module and the name of the
        attribute; or a node, and no name.
        """
        named = [
            (path, name, tensor)
            for path, module in self._modules_around(remove_duplicate=True)
            for attributes in (module._parameters, module._buffers, vars(module))
            for name, tensor in attributes.items()
        ]
        readings = self.graph_module.graph.find_nodes(op="get_attr")
        named += [(f"node {node.name}", "", self.attribute(node)) for node in readings]
        memory: dict[int, list[tuple[str, str, torch.Tensor]]] = defaultdict(list)
        for path, name, tensor in named:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                memory[storage_of(tensor)].append((path, name, tensor))
        return memory


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two tensors of one storage may have a byte in common."""
    (start, stop), (other_start, other_stop) = _extent(a), _extent(b)
    return start < other_stop and other_start < stop


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor in its storage, and the one after its last."""
    if tensor.numel() == 0:  # as if of one byte, so that its other holders are found
        return 0, 1
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset()
    return int(first * tensor.element_size()), int((first + last + 1) * tensor.element_size())


def rounding_readers(graph_module: GraphModule) -> dict[Node, Node]:
    """Return, for each value that is rounded to integers, a node that does it.

    Values also count if only a result computed from them, element by element, is rounded.
    """
    readers: dict[Node, Node] = {}
    for node in reversed(graph_module.graph.nodes):
        for user in node.users:
            if _rounds(user):
                readers[node] = user
            elif user in readers and _passes_on(user, graph_module):
                readers[node] = readers[user]
    return readers


def _rounds(node: Node) -> bool:
    dtype = known_dtype(node) if casts(node) else None
    is_integer = not (dtype is None or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return is_integer or rounds(node)


def _passes_on(node: Node, graph_module: GraphModule) -> bool:
    operator = operator_called(node, graph_module)
    if operator is None or known_dtype(node) == torch.bool:
        return False
    return operator.is_pointwise or casts(node) or moves_elements(node)


_OPERANDS: dict[str, int | slice] = {
    **{"cond": 3, "while_loop": 3, "scan": 3, "map_impl": 2},
    **{"wrap": slice(1, None), "tag_activation_checkpoint": slice(1, None)},
    "wrap_with_set_grad_enabled": slice(2, None),
}
"""The places of arguments that are the same for all runs of a body, as its last inputs."""


@dataclass(frozen=True)
class Passing:
    """A call, its bodies, and the tensors of the model that it passes to them, the same in each run.

    ``torch.export`` and Dynamo lift the weights that a body uses: the graph around reads them, and the call
    passes them on. Other inputs of a loop's body are new each time.
    """

    around: GraphModule
    """The module whose graph calls."""
    call: Node
    bodies: tuple[GraphModule, ...]
    readings: dict[Node, Node]
    """Inputs of the given body -> the ``get_attr`` nodes around it that they stand for."""
    counterparts: dict[Node, tuple[Node, ...]]
    """Inputs of the given body -> these inputs of each body."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """The operands that are the same for all runs."""
        return _operands(self.call)

    def arguments(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the call with other operands."""
        args: list[Any] = list(self.call.args)
        place = _OPERANDS[_name(self.call)]
        args[place] = list(operands) if isinstance(args[place], list) else operands
        return tuple(args)


def passing(body: GraphModule, around: GraphModule) -> Passing | None:
    """Return how tensors are passed to a body; ``None`` if unknown, or if they may vary."""
    if any(node.op == "call_module" or _reads_tensor(node, body) for node in body.graph.nodes):
        return None  # it has tensors of its own as well
    called = {node: bodies_called(node, around) for node in around.graph.nodes}
    times = Counter(each.module for bodies in called.values() for each in bodies)
    calls = [node for node, bodies in called.items() if body in [each.module for each in bodies]]
    if len(calls) != 1 or any(isinstance(value, Node) for value in calls[0].kwargs.values()):
        return None
    (call,) = calls
    operands, modules = _operands(call), tuple(each.module for each in called[call])
    inputs = [module.graph.find_nodes(op="placeholder")[-len(operands) :] for module in modules]
    readers = {user for each in called[call] if each.reading is not None for user in each.reading.users}
    is_whole = bool(operands) and all(len(found) == len(operands) for found in inputs)
    if not is_whole or readers != {call} or any(times[module] > 1 for module in modules):
        return None
    counterparts = {each[modules.index(body)]: each for each in zip(*inputs, strict=True)}
    given = zip(counterparts, operands, strict=True)
    readings = {node: value for node, value in given if _reads_tensor(value, around)}
    return Passing(around, call, modules, readings, counterparts)


def _operands(call: Node) -> tuple[Any, ...]:
    place = _OPERANDS.get(_name(call), len(call.args))
    given = call.args[place] if isinstance(place, slice) or place < len(call.args) else None
    return tuple(given) if isinstance(given, tuple | list) else ()


def _name(call: Node) -> str:
    return str(getattr(call.target, "__name__", ""))


def _reads_tensor(node: Any, graph_module: GraphModule) -> bool:
    if not isinstance(node, Node) or node.op != "get_attr":
        return False
    return isinstance(attribute_at(graph_module, str(node.target), None), torch.Tensor)
