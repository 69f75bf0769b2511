"""A graph of Dynamo under the model's own names, for captures and backends: weights are attributes again."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.generated_code import protect
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.parts import graph_module_of
from fxlab.operators.node_info import attribute_at
from fxlab.tracing.dynamo.torch_private import Origin, held_sizes, origin_of, stack_entries
from fxlab.tracing.report import CAPTURED, TraceReport
from fxlab.tracing.shapes.held_inputs import hold_inputs, hold_mode
from fxlab.values.tensors import known_number

_ADVICE = "Capture the model in the mode in which it is to run."
_OF_DYNAMO = ("grapharg", "example_value", "creation_timestamp", "tensor_dict")
"""Entries of ``node.meta`` that hold Dynamo's own objects."""


def model_graph(
    captured: GraphModule, values: Sequence[Any], running: Sequence[nn.Module]
) -> tuple[GraphModule, tuple[Any, ...]]:
    """Make a graph module that holds the weights that Dynamo made inputs of, and return it with its inputs.

    ``captured``: the graph that a backend of ``torch.compile`` receives; it is not changed. ``values``: the
    values of its placeholders. ``running``: the modules whose calls are going on, the outermost first:
    weights and paths have their names there.
    """
    rewritten = _Rewritten(captured, values, _Names(running))
    module = rewritten.module
    ranges, guards = held_sizes(captured.graph)
    findings = [*hold_inputs(module.graph, ranges, guards), *hold_mode(module, _ADVICE)]
    module.recompile()
    module.meta["trace"] = TraceReport(CAPTURED, tuple(findings))
    return module, tuple(_own_copy(values[position]) for position in rewritten.positions)


class LiftedGraph:
    """A captured graph with the model's own weights, for one who gets the values of its placeholders."""

    def __init__(self, captured: GraphModule, values: Sequence[Any], running: Sequence[nn.Module]) -> None:
        rewritten = _Rewritten(captured, values, _Names(running))
        self._module = rewritten.module
        output = self._module.graph.output_node()
        self.is_single = len(output.args[0]) == 1  # type: ignore[arg-type]
        """Whether the graph returns one value itself, which Dynamo's returns in a tuple."""
        if self.is_single:
            output.args = tuple(output.args[0])  # type: ignore[arg-type]
        _name_as_modules(self._module.graph)
        self._module.recompile()
        self._positions, self._lifted = rewritten.positions, rewritten.lifted
        self._set_weights(dict.fromkeys(self._lifted))

    def weights(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """Return those of the values of the placeholders that are weights of the model."""
        return [values[position] for position in self._lifted.values()]

    def inputs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return those that are inputs of the graph."""
        return tuple(values[position] for position in self._positions)

    def with_weights(self, values: Sequence[Any]) -> GraphModule:
        """Return a copy of the graph that has the weights that are among the values."""
        self._set_weights({path: values[position] for path, position in self._lifted.items()})
        try:
            return share_tensors_copy(self._module)
        finally:
            # The module that is kept must not keep weights alive that the model has replaced.
            self._set_weights(dict.fromkeys(self._lifted))

    def _set_weights(self, weights: Mapping[str, Any]) -> None:
        for path, weight in weights.items():
            parent, _, name = path.rpartition(".")
            owner = self._module.get_submodule(parent)
            for holder in (owner._parameters, owner._buffers, vars(owner)):
                if name in holder:
                    holder[name] = weight


class _Names:
    """Finds the names that tensors and variables have in the outermost module that runs."""

    def __init__(self, running: Sequence[nn.Module]) -> None:
        self._outermost = running[0] if running else nn.Module()
        self._tensors: dict[int, list[str]] = {}
        for named in (self._outermost.named_parameters, self._outermost.named_buffers):
            for name, tensor in named(remove_duplicate=False):
                self._tensors.setdefault(id(tensor), []).append(name)
        paths = {id(module): path for path, module in self._outermost.named_modules()}
        self.around = [(paths[id(module)], type(module)) for module in running[1:] if id(module) in paths]
        """The modules around the captured code, without the outermost."""
        self._inner = self.around[-1][0] if self.around else ""
        self._roots: dict[str, str] = {}

    def of_tensor(self, tensor: torch.Tensor, origin: Origin) -> str:
        """Return the path of a tensor; of several that it has, the one that Dynamo came by."""
        names = self._tensors.get(id(tensor), [])
        known = [name for name in names if name == origin.path or name.endswith(f".{origin.path}")]
        if not known:
            return names[0] if names else _joined(self._inner, origin.path)
        name = known[0]
        self._roots.setdefault(origin.root, name[: len(name) - len(origin.path)].rstrip("."))
        return name

    def of_module(self, root: str, path: str) -> str:
        """Return the path of a module that is reached from a variable."""
        return _joined(self._roots.get(root, self._inner), path)


def _joined(*parts: str) -> str:
    return ".".join(filter(None, parts))


class _Rewritten:
    """Copies a captured graph node by node."""

    def __init__(self, captured: GraphModule, values: Sequence[Any], names: _Names) -> None:
        self._captured, self._names = captured, names
        self._placeholders = list(zip(captured.graph.find_nodes(op="placeholder"), values, strict=True))
        self._copies: dict[Node, Node] = {}
        self._held: dict[str, Any] = {}
        self.graph = Graph()
        self.positions: list[int] = []
        """Which of the captured graph's placeholders are inputs of the new one."""
        self.lifted: dict[str, int] = {}
        """Which are attributes, by their paths."""
        self.module = self._made()

    def _made(self) -> GraphModule:
        lifted = [
            self._input(position, node, value) for position, (node, value) in enumerate(self._placeholders)
        ]
        for position, node, origin in filter(None, lifted):
            self._attribute(position, node, origin)
        for node in self._captured.graph.nodes:
            if node not in self._copies and not (node.op == "placeholder" and not node.users):
                self._copies[node] = self._copied(node)
        module = graph_module_of(self._held, self.graph, type(self._captured).__name__)
        _tidied_bodies(module)
        ensure_picklable(module)
        return module

    def _input(self, position: int, node: Node, value: Any) -> tuple[int, Node, Origin] | None:
        """Make a placeholder for an input of the caller; return a value of the model, or a size, instead."""
        origin = origin_of(node)
        is_size = isinstance(value, torch.SymInt) and origin is not None and origin.size is not None
        if origin is not None and (is_size or (origin.in_module and isinstance(value, torch.Tensor))):
            return position, node, origin
        name = _input_name(node, origin)
        copy = self._copies[node] = self.graph.placeholder(name)
        copy.target = copy.name if keyword.iskeyword(name) or name in self._targets() else name
        copy.meta = _meta(node, "nn_module_stack")
        self.positions.append(position)
        return None

    def _targets(self) -> set[str]:
        return {str(node.target) for node in list(self.graph.nodes)[:-1]}

    def _attribute(self, position: int, node: Node, origin: Origin) -> None:
        """Read a tensor of the model, or the size of an input."""
        if not node.users:
            return
        value = self._placeholders[position][1]
        if origin.size is not None:
            text, dim = origin.size
            tensor = next((n for n, _ in self._placeholders if (o := origin_of(n)) and o.text == text), None)
            if tensor is not None and tensor in self._copies:
                copy = self.graph.call_method("size", (self._copies[tensor], dim))
            else:  # of a tensor that the graph does not read
                copy = self.graph.placeholder(_input_name(node, origin))
                self.positions.append(position)
        else:
            path = self._hold(self._names.of_tensor(value, origin), value)
            self.lifted[path] = position
            copy = self.graph.get_attr(path)
        copy.meta = _meta(node, "nn_module_stack")
        self._copies[node] = copy

    def _hold(self, path: str, value: Any) -> str:
        """Keep an attribute under a path, or under one like it if another attribute has that already."""
        number, free = 1, path
        while free in self._held and self._held[free] is not value:
            number, free = number + 1, f"{path}_{number}"
        self._held[free] = value
        return free

    def _copied(self, node: Node) -> Node:
        copy = self.graph.node_copy(node, self._copies.__getitem__)
        copy.meta = _meta(node)
        calls = {path: (path, owner) for path, owner in self._names.around}
        for root, path, owner in stack_entries(node):
            if full := self._names.of_module(root, path):
                calls[full] = (full, owner)
        copy.meta["nn_module_stack"] = calls
        if node.op in ("get_attr", "call_module"):
            copy.target = self._hold(str(node.target), attribute_at(self._captured, str(node.target)))
        return copy


def _name_as_modules(graph: Graph) -> None:
    """Name the one node of a layer of torch by the layer's path, as a trace does: exclusions go by names."""
    of_layers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (stack := node.meta.get("nn_module_stack")):
            path, owner = list(stack.values())[-1]
            if str(getattr(owner, "__module__", "")).startswith("torch.nn."):
                of_layers.setdefault(path, []).append(node)
    for path, nodes in of_layers.items():
        if len(nodes) == 1:
            nodes[0]._rename(path.replace(".", "_"))


def _input_name(node: Node, origin: Origin | None) -> str:
    """Return the name of an input: its variable, and the way to it from there."""
    if origin is None:
        return node.name
    name = "_".join((origin.root.strip("_"), *origin.steps))
    return name if name.isidentifier() else node.name


def _meta(node: Node, *without: str) -> dict[str, Any]:
    meta = {key: value for key, value in node.meta.items() if key not in (*_OF_DYNAMO, *without)}
    return meta | ({"val": node.meta["example_value"]} if "example_value" in node.meta else {})


def _own_copy(value: Any) -> Any:
    """Return a copy of an input, which the caller may write into later, or the number of a symbolic one."""
    if not isinstance(value, torch.Tensor):
        return known_number(value)
    return value.detach().clone().requires_grad_(value.requires_grad)


def _tidied_bodies(graph_module: GraphModule) -> None:
    """Give the graphs inside higher-order operators copies of their own, without Dynamo's objects."""
    for path, body in _bodies(graph_module):
        copy = GraphModule(body, protect(_tidied(body.graph)), class_name=type(body).__name__)
        _tidied_bodies(copy)
        parent, _, name = path.rpartition(".")
        setattr(graph_module.get_submodule(parent), name, copy)


def _bodies(graph_module: GraphModule) -> Iterable[tuple[str, GraphModule]]:
    targets = dict.fromkeys(str(node.target) for node in graph_module.graph.find_nodes(op="get_attr"))
    found = [(path, attribute_at(graph_module, path, None)) for path in targets]
    return [(path, value) for path, value in found if isinstance(value, GraphModule)]


def _tidied(graph: Graph) -> Graph:
    result = Graph()
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        copies[node] = result.node_copy(node, copies.__getitem__)
        copies[node].meta = _meta(node)
    return result
