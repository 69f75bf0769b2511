"""Recorded runs as graphs, which are read, drawn and aligned as others, and cannot run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.comparison.recorded.recorded_run import INPUT, OPERATOR, UNSEEN, WEIGHT, RecordedRun, Step, Value
from fxlab.comparison.recorded.run_file import steps_read
from fxlab.torch_private import OpOverload
from fxlab.validation.alignment.side import Side, Values

ROUNDINGS = 4
"""How many times as far as rounding has moved a value two equal runs may be apart."""
_LARGEST = 0.05
"""The largest relative difference that rounding is taken for."""
_OPERATOR = re.compile(r"(\w+)\.(\w+)\.(\w+)")
_PATH = re.compile(r"\w+(\.\w+)*", re.ASCII)


def side_of(run: RecordedRun) -> Side:
    """Return a run as a side of an alignment; its values count as the same up to its own rounding."""
    graph = Graph()
    nodes = _nodes(run, graph)
    held = {str(node.target): node.meta["val"] for node in nodes if node.op == "get_attr"}
    returned = {path: nodes[at] for path, (at, _) in run.outputs.items() if at >= 0}
    graph.output(returned or tuple(node for node in nodes if not node.users))
    module = GraphModule(held, graph, run.model if run.model.isidentifier() else "RecordedRun")
    values: Values = {}
    for node, step in zip(nodes, run.steps, strict=True):
        found = {value.path: value.fingerprint for value in step.values if value.fingerprint is not None}
        if found:
            values[node] = found
    outputs = {path: found for path, (_, found) in run.outputs.items()}
    side = Side(module, values, outputs, origins=[node for node in nodes if draws(node)])
    tolerances = [*_tolerances(run)]
    side.tolerance = {node: t for node, t in zip(nodes, tolerances, strict=True) if node in values}
    side.tolerance_of_outputs = {p: tolerances[at] for p, (at, _) in run.outputs.items() if at >= 0}
    return side


def _nodes(run: RecordedRun, graph: Graph) -> list[Node]:
    nodes: list[Node] = []
    stacks: dict[int, dict[str, tuple[str, str]]] = {-1: {}}
    for at, (path, cls, around) in enumerate(run.calls):
        outside = stacks[around]
        key = path if path not in outside else f"{path}@{at}"
        stacks[at] = {**outside, key: (path, cls)}
    for at, (name, step) in enumerate(zip(run.names, run.steps, strict=True)):
        node = _node(step, at, name, nodes, graph)
        if stack := stacks[step.call]:
            node.meta["fwd_nn_module_stack" if step.is_backward else "nn_module_stack"] = dict(stack)
        if step.line >= 0:
            node.meta["stack_trace"] = run.lines[step.line]
        known = [_meta(value) for value in step.values]
        if known:
            node.meta["val"] = known[0] if [v.path for v in step.values] == [()] else tuple(known)
        nodes.append(node)
    return nodes


def _node(step: Step, at: int, name: str, nodes: list[Node], graph: Graph) -> Node:
    if step.kind in (INPUT, UNSEEN):
        return graph.create_node("placeholder", name, (), {}, name)
    if step.kind == WEIGHT:
        target = step.target if _PATH.fullmatch(step.target) else f"weight_{at}"
        return graph.create_node("get_attr", target, (), {}, name)
    args = tuple(_argument(each, nodes) for each in step.args)
    if step.kind == OPERATOR and (found := _operator(step.target)) is not None:
        return graph.create_node("call_function", found, args, {}, name)
    return graph.create_node("call_function", _stand_in(name), args, {}, name)


def _argument(value: Any, nodes: list[Node]) -> Any:
    if isinstance(value, list):
        return [_argument(each, nodes) for each in value]
    if isinstance(value, dict):
        return nodes[value["step"]] if "step" in value else str(value.get("text", ""))
    return value


def _operator(name: str) -> OpOverload | None:
    """Return an operator of torch by its name, if this torch has it."""
    parts = _OPERATOR.fullmatch(name)
    found: Any = torch.ops
    for part in parts.groups() if parts else ():
        found = getattr(found, part, None)
    return found if isinstance(found, OpOverload) else None


def _stand_in(name: str) -> Callable[..., Any]:
    def recorded(*_: Any) -> Any:
        raise RuntimeError("This graph is a run that was recorded: it has fingerprints, and cannot run.")

    recorded.__name__ = recorded.__qualname__ = name
    recorded.__module__ = "recorded"
    return recorded


def draws(node: Node) -> bool:
    """Tell whether a node draws random numbers, so that it may be wrong although it reads nothing."""
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _meta(value: Value) -> torch.Tensor:
    dtype = getattr(torch, value.dtype, torch.float32)
    return torch.empty(value.shape, dtype=dtype if isinstance(dtype, torch.dtype) else None, device="meta")


def _tolerances(run: RecordedRun) -> Iterator[float]:
    """Yield by step how far rounding may move its values: as measured, or else estimated."""
    units, depths = list[float](), list[int]()
    for step in run.steps:
        read = [*steps_read(step.args)]
        unit = max([unit_of(value.dtype) for value in step.values] + [units[at] for at in read], default=0.0)
        depth = 1 + max((depths[at] for at in read), default=0)
        units.append(unit)
        depths.append(depth)
        moved = [value.moved for value in step.values if value.fingerprint is not None]
        if all(each is not None for each in moved):
            apart = max([unit, *(each for each in moved if each is not None)])
        else:
            apart = unit * math.sqrt(depth)
        yield min(ROUNDINGS * apart, _LARGEST)


def unit_of(dtype: str) -> float:
    """Return the relative rounding of a dtype, by its name; none of whole numbers."""
    found = getattr(torch, dtype, None)
    is_rounded = dtype.startswith(("float", "bfloat", "complex"))
    return torch.finfo(found).eps if isinstance(found, torch.dtype) and is_rounded else 0.0
