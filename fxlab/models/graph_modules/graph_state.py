"""The graph of a module in a pickle: its nodes with their names and ``meta``, functions by name.

Pickles of graph modules are made of it (``graph_module.py``), and those of the journal keep targets so.
"""

import pickle
import pkgutil
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch.fx import Graph, Node

from fxlab.base.torch_private import FakeTensor, dumped, loaded, qualified_name
from fxlab.values.pickling import for_protocol, is_picklable, picklable_meta


@dataclass(frozen=True)
class _Reference:
    """Stands for the node at ``index`` in pickled arguments."""

    index: int


@dataclass(frozen=True)
class FunctionName:
    """Stands for a function that pickle cannot find, like some of torch's builtins."""

    name: str

    def find(self) -> Any:
        """Return the function; ``None`` if there is none."""
        try:
            return pkgutil.resolve_name(self.name)
        except (AttributeError, ImportError, ValueError):
            return None


class _NodeState(NamedTuple):
    op: str
    name: str
    target: Any
    args: Any
    kwargs: Any
    type: Any
    meta: dict[str, Any]


class GraphState(NamedTuple):
    """The state of a graph in a pickle."""

    nodes: list[_NodeState]
    codegen: Any
    tracer_class: Any
    values: bytes | None
    """The fake tensors of ``meta["val"]`` by the index of their node, from torch's graph pickler."""

    @classmethod
    def of(cls, graph: Graph, protocol: int) -> "GraphState":
        """Return the state of a graph, for a protocol of pickle."""
        references = {node: _Reference(index) for index, node in enumerate(graph.nodes)}

        def refer(node: Node) -> Any:
            return references[node]

        nodes = [
            _NodeState(
                node.op,
                node.name,
                picklable_target(node.target),
                for_protocol(torch.fx.map_arg(node.args, refer), protocol),
                for_protocol(torch.fx.map_arg(node.kwargs, refer), protocol),
                for_protocol(node.type, protocol) if is_picklable(node.type) else None,
                picklable_meta(node.meta, protocol),
            )
            for node in graph.nodes
        ]
        tracer_class = graph._tracer_cls if is_picklable(graph._tracer_cls) else None
        return cls(nodes, graph._codegen, tracer_class, _fake_values_state(graph))

    def build(self) -> Graph:
        """Return a graph of this state."""
        graph = Graph(tracer_cls=self.tracer_class)
        nodes: list[Node] = []

        def resolve(value: Any) -> Any:
            return nodes[value.index] if isinstance(value, _Reference) else value

        for state in self.nodes:
            node = graph.create_node(
                state.op,
                state.target.find() if isinstance(state.target, FunctionName) else state.target,
                torch.fx.node.map_aggregate(state.args, resolve),
                torch.fx.node.map_aggregate(state.kwargs, resolve),
                state.name,
                state.type,
            )
            node.meta = state.meta
            nodes.append(node)
        graph.set_codegen(self.codegen)
        for index, value in _fake_values(self.values).items():
            nodes[index].meta["val"] = value
        return graph


def picklable_target(target: Any) -> Any:
    """Return a node's target, or the :class:`FunctionName` of a function that pickle cannot find."""
    if not callable(target) or is_picklable(target):
        return target
    found = FunctionName(qualified_name(target))
    if found.find() is not target:
        raise pickle.PicklingError(f"cannot pickle the call of {found.name}: no module has it")
    return found


def _fake_values_state(graph: Graph) -> bytes | None:
    values: dict[int, Any] = {}
    alike: dict[object, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        value = node.meta.get("val")
        if not is_picklable(value):
            same = alike.setdefault(description(value), [])
            if not same:
                values[index] = value
            same.append(index)
    return dumped((values, list(alike.values()))) if values else None


def description(value: Any) -> object:
    """Return a key that is equal for indistinguishable fake tensors, as torch is slow to make them again."""
    if type(value) is not FakeTensor or value.layout is not torch.strided or value._is_view():
        return id(value)
    if value.constant is not None or value.real_tensor is not None:
        return id(value)
    sizes = (*value.shape, *value.stride(), value.storage_offset(), value.untyped_storage().nbytes())
    told = (size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes)
    flags = value.dtype, value.device, value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg()
    return (id(value.fake_mode), value.dim(), *flags, *told)


def _fake_values(state: bytes | None) -> dict[int, Any]:
    found = None if state is None else loaded(state)
    if found is None:
        return {}
    values, alike = cast("tuple[dict[int, Any], list[list[int]]]", found)
    return {index: values[indices[0]] for indices in alike for index in indices}
