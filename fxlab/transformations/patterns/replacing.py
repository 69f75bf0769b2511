"""Puts a replacement in the place of a match, with known facts about its results, for passes of patterns."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxlab.models.graph_modules.parts import unused_name
from fxlab.operators import is_of_python, may_alias
from fxlab.operators.node_info import attribute_at, outputs_of, upstream
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.term import Weight
from fxlab.transformations.patterns.captured import AbsorbedTerms, CallInPlaceOfModule, Size
from fxlab.transformations.rewriting.editor import Editor, place_of


@dataclass(frozen=True, eq=False)
class Replacement:
    """A traced replacement, for one choice of numbers and optional arguments; ``inputs``: their names."""

    graph: Graph
    root: nn.Module
    inputs: dict[Node, str]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The values that it returns."""
        return outputs_of(self.graph)

    @property
    def calls(self) -> list[Node]:
        """The calls that it makes."""
        return [node for node in self.graph.nodes if node.op not in ("placeholder", "output")]

    def passed_on(self, output: Any) -> str | None:
        """Return the argument that an output is, or may be a view of; ``None`` if it is a new tensor."""
        while isinstance(output, Node) and output.op != "placeholder":
            if output.op not in ("call_function", "call_method") or not may_alias(output):
                return None
            output = next(iter(output.all_input_nodes), None)
        return self.inputs.get(output) if isinstance(output, Node) else None


def values_of(
    replacement: Replacement,
    given: dict[str, Any],
    run: Callable[[Node, tuple[Any, ...], dict[str, Any]], Any],
) -> tuple[Any, ...]:
    """Run a replacement with values for its arguments, each call by ``run``; return its results."""
    values = {node: given[name] for node, name in replacement.inputs.items()}
    for node in replacement.calls:
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = run(node, args, kwargs)
    return tuple(map_arg(replacement.outputs, values.__getitem__))


class Placing:
    """Writes the calls of a replacement before a node, at the place in the model of the node ``like``."""

    def __init__(self, edit: Editor, facts: GraphFacts, place: Node, like: Node) -> None:
        self._edit, self._facts, self._place, self._like = edit, facts, place, like
        self._weights: dict[str, Node] = {}
        self.made: list[Node] = []

    def argument(self, value: Any) -> Any:
        """Return a captured value as an argument in the graph: a node, a number, a list of them."""
        if isinstance(value, Weight):
            return self._weight(value.path)
        if isinstance(value, Size):
            if isinstance(value.value, int):
                return value.value
            return self.insert("call_method", "size", (value.node, value.dim), {}, value.value)
        if isinstance(value, AbsorbedTerms):
            target: Any = torch.add if value.name == "add" else torch.mul
            first, *rest = (self.argument(each) for each in value.values)
            for other in rest:
                known = run_fake(target, (first, other), {}, self._edit)
                first = self.insert("call_function", target, (first, other), {}, known)
            return first
        if isinstance(value, tuple):
            return tuple(map(self.argument, value))
        return value

    def _weight(self, path: str) -> Node:
        if path not in self._weights:
            tensor = attribute_at(self._facts.graph_module, path)
            node = self.insert(
                "get_attr", path, (), {}, fake_like(tensor, self._like), path.replace(".", "_")
            )
            self.made.remove(node)
            self._weights[path] = node
        return self._weights[path]

    def insert(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        known: Any,
        name: str | None = None,
    ) -> Node:
        """Insert a call and return it."""
        meta = place_of(self._like) | ({} if known is None else {"val": known})
        node = self._edit.insert_before(self._place, op, target, args, kwargs, name=name, meta=meta)
        self.made.append(node)
        return node

    def all(
        self, replacement: Replacement, given: dict[str, Any], modules: dict[str, str | CallInPlaceOfModule]
    ) -> tuple[Any, ...]:
        """Write all calls of a replacement; return its results."""
        values: dict[Node, Any] = {node: given[name] for node, name in replacement.inputs.items()}
        folded = {} if self._facts.is_body else self._folded(replacement, values)
        for node in replacement.calls:
            if node in folded:
                if not isinstance(folded[node], torch.Tensor):
                    values[node] = folded[node]
                elif any(user not in folded for user in node.users):
                    values[node] = self._made_of_weights(node, folded[node], replacement, values)
                continue
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            target: Any = node.target
            if node.op == "call_module":
                own = modules.get(str(target))
                if isinstance(own, CallInPlaceOfModule):
                    values[node] = self._called_again(own, args[0])
                    continue
                target = own or self._module(replacement.root, str(target))
            elif node.op == "get_attr":
                constant = attribute_at(replacement.root, str(target))
                target = unused_name(self._facts.graph_module, f"{self._like.name}_constant")
                self._edit.add_buffer(target, constant)
            known = run_fake(target, args, kwargs, self._edit, node.op)
            # A number that follows from fixed shapes needs no node.
            is_fixed = type(known) in (int, float, bool)
            values[node] = known if is_fixed else self.insert(node.op, target, args, kwargs, known)
        for made in reversed(list(self.made)):  # sizes of which only a number was needed
            if isinstance(made.meta.get("val"), torch.Size) and not made.users:
                self._edit.erase(made)
                self.made.remove(made)
        return tuple(map_arg(replacement.outputs, values.__getitem__))

    def _called_again(self, called: CallInPlaceOfModule, value: Any) -> Any:
        """Make the calls of the graph once more, with another input."""
        made: dict[Node, Any] = {called.input: value}
        for node in called.nodes:
            args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: made.get(each, each))
            made[node] = self.insert(
                node.op, node.target, args, kwargs, run_fake(node.target, args, kwargs, self._edit, node.op)
            )
        return made[called.nodes[-1]]

    def erase_unused(self) -> None:
        """Erase unused nodes that read weights."""
        for node in self._weights.values():
            if not node.users:
                self._edit.erase(node)

    def _module(self, root: nn.Module, path: str) -> str:
        name = unused_name(self._facts.graph_module, path.replace(".", "_"))
        # Each match gets a module of its own.
        self._edit.add_module(name, copy.deepcopy(root.get_submodule(path)))
        return name

    def _tensor(self, node: Any) -> torch.Tensor | None:
        """Return the tensor of the model that a node reads, if it holds data."""
        is_read = isinstance(node, Node) and node.op == "get_attr"
        value = attribute_at(self._facts.graph_module, str(node.target), None) if is_read else None
        return value if isinstance(value, torch.Tensor) and not value.is_meta else None

    def _folded(self, replacement: Replacement, values: dict[Node, Any]) -> dict[Node, Any]:
        """Compute the values that depend on weights alone."""
        known: dict[Node, Any] = {}
        for node, value in values.items():
            tensor = self._tensor(value)
            if tensor is not None and not self._facts.writes.is_tensor_written(tensor):
                known[node] = tensor.detach()
        folded: dict[Node, Any] = {}
        for node in replacement.calls:
            read = node.all_input_nodes
            is_called = node.op in ("call_function", "call_method")
            if not is_called or not read or not all(each in known for each in read):
                continue
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            with torch.no_grad():
                folded[node] = known[node] = run(node.op, node.target, args, kwargs)
        return folded

    def _made_of_weights(
        self, node: Node, tensor: torch.Tensor, replacement: Replacement, values: dict[Node, Any]
    ) -> Node:
        tensors = (self._tensor(values.get(each)) for each in upstream(node) if each.op == "placeholder")
        is_trained = any(tensor is not None and tensor.requires_grad for tensor in tensors)
        name = unused_name(self._facts.graph_module, f"{self._like.name}_weight")
        self._edit.add_parameter(name, nn.Parameter(tensor.clone(), requires_grad=is_trained))
        made = self.insert("get_attr", name, (), {}, fake_like(tensor, self._like), name)
        self.made.remove(made)
        return made


def run(op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call with values."""
    if op == "call_method":
        return getattr(args[0], str(target))(*args[1:], **kwargs)
    return target(*args, **kwargs)


def fake_like(tensor: torch.Tensor, like: Node) -> Any:
    """Return a fake tensor of another node's mode; ``None`` without a mode."""
    mode: Any = getattr(like.meta.get("val"), "fake_mode", None)
    if mode is None:
        return None
    try:
        # By default, torch may make symbols of the sizes.
        return mode.from_tensor(tensor.detach(), static_shapes=True)
    except Exception:  # a tensor that cannot be faked
        return None


def run_fake(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], edit: Editor, op: str = "call_function"
) -> Any:
    """Return the fake result of a call on its arguments' fake values; ``None`` if it is unknown."""
    nodes: list[Node] = []
    map_arg((args, kwargs), nodes.append)
    known = {node: node.meta.get("val") for node in nodes}
    if any(value is None for value in known.values()) or not (nodes or is_of_python(target)):
        return None
    modes = (getattr(value, "fake_mode", None) for value in known.values())
    mode: Any = next((mode for mode in modes if mode is not None), None)
    if mode is None and any(isinstance(value, torch.Tensor) for value in known.values()):
        return None
    try:
        with mode or nullcontext(), torch.no_grad():
            given, named = map_arg((args, kwargs), known.__getitem__)
            if op == "call_module":
                module = edit.graph_module.get_submodule(str(target))
                held = {name: mode.from_tensor(value) for name, value in module.state_dict().items()}
                return torch.func.functional_call(module, held, given, named)
            return run(op, target, given, named)
    except Exception:  # misfitting shapes are reported when the replacement is confirmed
        return None
