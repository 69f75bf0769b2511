"""Provenance for flat graphs and compiler passes: modules, lines, names of nodes, and what placeholders are.

Placeholders are inputs, parameters and buffers, found by identity: the values that Dynamo's graph ran with
are the model's parameters, or copies of the inputs. Descriptors of AOTAutograd lead from there to later
graphs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.compiler.graphs.torch_private import root_names
from fxlab.compiler.recording.snapshot import NodeOrigin
from fxlab.compiler.recording.steps import WHOLE, Recording
from fxlab.operators.node_info import is_backward
from fxlab.values.nested import flatten_objects, tensors_inside
from fxlab.values.tensors import known_number

_NO_NAME = re.compile(r"\W+")


@dataclass(frozen=True)
class Slot:
    """A placeholder of a graph, and the value it stands for."""

    name: str
    """The name of its node in stages."""
    path: str | None
    """Where the model holds it; ``None`` for an input."""
    value: Any


def slots_of(
    paths: Mapping[int, str],
    inputs: Mapping[str, Any],
    ran: Mapping[str, Any],
    recording: Recording,
    names: Names,
) -> list[Slot]:
    """Find the origin of the placeholders of Dynamo's graph by the values that it ran with.

    ``paths``: those of parameters and buffers, by their ``id``. ``inputs``, ``ran``: the inputs by name, and
    the copies that the model was called with. None for a graph after a break: its inputs were computed by
    earlier code. ``names``: where the nodes get their names.
    """
    given, copies = _by_name(inputs), _by_name(ran)
    named = {id(tensor): name for name, tensor in copies.items()}
    first, slots = recording.stacks[WHOLE].first, []
    placeholders = first.graph.find_nodes(op="placeholder")
    for node, value, copy in zip(placeholders, recording.values, recording.copies, strict=True):
        path: str | None = paths.get(id(value))
        wish = path or named.get(id(value), node.name)
        if id(value) in named:
            copy = given[wish]
        elif path is None and inputs and isinstance(value, torch.Tensor):
            path = f"constants.{node.name}"
        wish = _NO_NAME.sub("_", wish).strip("_") or node.name
        slots.append(Slot(names.give(first.dialect, node.name, wish), path, copy if path is None else value))
    return slots


def random_like(fake: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers of the sizes, strides and dtype of a fake tensor."""
    size, stride = ([int(known_number(n)) for n in numbers] for numbers in (fake.shape, fake.stride()))
    result = torch.empty_strided(size, stride, dtype=fake.dtype, device=fake.device)
    numbers = torch.randn(
        size, generator=generator, dtype=torch.promote_types(fake.dtype, torch.float32), device="cpu"
    )
    return result.copy_(numbers)


def _by_name(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        "_".join(map(str, path)): tensor for path, tensor in tensors_inside(flatten_objects(dict(inputs)))
    }


class Names:
    """The names of nodes: a node with the value of one of Dynamo's graph has its name in all stages."""

    def __init__(self) -> None:
        self._taken = Graph()
        self._known: dict[tuple[Any, ...], str] = {}

    def of(self, dialect: str, name: str, made: Mapping[str, NodeOrigin]) -> str:
        """Return the name of a node, independent of the order in which matches are found."""
        key: tuple[Any, ...] = (dialect, name)
        if name in made:
            key = (made[name].pass_, self.of(dialect, made[name].anchor, made), made[name].place)
        return self._known.get(key) or self._give(key, name)

    def give(self, dialect: str, name: str, wish: str) -> str:
        """Give a node a name like another one; returns the one that was free."""
        return self._give((dialect, name), wish)

    def share(self, dialect: str, name: str, known: str) -> None:
        """Give a node the name of another, for which it stands."""
        self._known[dialect, name] = known

    def _give(self, key: tuple[Any, ...], wish: str) -> str:
        free = self._taken.create_node("placeholder", wish, name=wish).name
        self._known[key] = free
        return free


_OWN_FRAME = re.compile(
    r'^ *File "[^"\n]*fxlab.compiler.compiling.hooks\.py", line .*\n.*(?:\n|\Z)', re.MULTILINE
)
"""The frame in which a module is called to be compiled."""
_ROOT = re.compile(r"^L\[(['\"])\w+\1\]\.?")
_ITEM = re.compile(r"(?:\._modules)?\[(['\"]?)(\w+)\1\]")


def class_paths(model: nn.Module) -> dict[str, str]:
    """Return the qualified class of each module of a model, by its path; an exported one notes them."""
    noted: dict[str, str] = {}
    if isinstance(model, GraphModule):
        for node in model.graph.nodes:
            stack = node.meta.get("nn_module_stack") or {}
            noted |= {path: name for path, name in stack.values() if isinstance(name, str)}
    return {
        path: noted.get(path, f"{type(module).__module__}.{type(module).__qualname__}")
        for path, module in model.named_modules(remove_duplicate=False)
    }


def clean_meta(node: Node, classes: Mapping[str, str], roots: Mapping[str, str]) -> dict[str, Any]:
    """Return the ``meta`` of a node as graphs of fxlab have it: result, source lines, modules, its pass."""
    meta = node.meta
    result = {"val": meta.get("val", meta.get("example_value"))}
    if trace := _OWN_FRAME.sub("", str(meta.get("stack_trace") or "")):
        result["stack_trace"] = trace
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if isinstance(stack, dict) and (paths := _paths(stack, classes, roots)):
        result["nn_module_stack"] = {path: (path, classes[path]) for path in paths}
    if is_backward(node):
        result["autograd_backward"] = True
    return {key: value for key, value in result.items() if value is not None}


def stack_of_path(path: str, classes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the ``nn_module_stack`` of the attributes of the module at a path."""
    parts = path.split(".")
    paths = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return {outer: (outer, classes[outer]) for outer in paths if outer in classes}


def fill_module_stacks(made: Iterable[Node]) -> None:
    """Attribute nodes that the compiler made from no other to the module of their first users or inputs."""
    calls = [node for node in made if node.op.startswith("call")]
    for nodes, others in ((reversed(calls), "users"), (calls, "all_input_nodes")):
        for node in nodes:
            if "nn_module_stack" not in node.meta:
                near = (other.meta.get("nn_module_stack") for other in getattr(node, others))
                if stack := next(filter(None, near), None):
                    node.meta["nn_module_stack"] = stack


def origins(graph: Graph) -> dict[str, list[str]]:
    """Return, by the name of a node of Dynamo's graph, the nodes of a later graph that it became."""
    found: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.op.startswith("call"):
            for name in root_names(node):
                found[name].append(node.name)
    return dict(found)


def same_values(captured: Graph, graph: Graph) -> dict[str, str]:
    """Return the nodes of a graph of ATen operators that compute the values of nodes of Dynamo's graph.

    Of the nodes that one became, that is the last that others read and that has its shape and dtype. Returns
    a mapping: name in the graph of ATen operators -> name in Dynamo's.
    """
    nodes = {node.name: node for node in graph.nodes}
    became = origins(graph)
    found = {}
    for node in captured.nodes:
        members = set(became.get(node.name, ()))
        kind = _kind(node.meta.get("example_value", node.meta.get("val")))  # of an exported graph
        for name in reversed(became.get(node.name, ())):
            is_read = any(user.name not in members for user in nodes[name].users)
            if kind and is_read and kind == _kind(nodes[name].meta.get("val")) and name not in found:
                found[name] = node.name
                break
    return found


def _kind(value: Any) -> tuple[Any, ...] | None:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None


def _paths(stack: Mapping[str, Any], classes: Mapping[str, str], roots: Mapping[str, str]) -> list[str]:
    """Return the paths of modules that Dynamo writes as expressions."""
    found: dict[str, None] = {}
    for entry in stack.values():
        if isinstance(entry, tuple) and len(entry) == 2:
            text = str(entry[0])
            known = max((root for root in roots if text.startswith(root)), key=len, default=None)
            below = _ROOT.sub("", text) if known is None else text[len(known) :]
            root = "" if known is None else roots[known]
            path = _ITEM.sub(r".\2", f"{root}.{below.lstrip('.')}").strip(".")
            if path and path in classes:
                found[path] = None
    return [*found]
