"""Checks in a graph that Dynamo or torch.export captured: the sizes and the mode that it holds for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.models.graph_modules.parts import Mode, RequireModes, first_compute, put_requirement
from fxlab.tracing.bound_inputs import name_of_size
from fxlab.tracing.report import Finding, Found
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes, condition_text, expression_of
from fxlab.values.nested import REFUSAL, RequireParts, part_of, tensors_inside


def hold_mode(graph_module: GraphModule, advice: str) -> list[Finding]:
    """Put a graph module in the mode that its operators have, and make it refuse the other one."""
    modes = {flag for node in graph_module.graph.nodes if (flag := _training_flag(node)) is not None}
    graph_module.train(True in modes)
    if not modes:
        return []
    required = [("the module", Mode(training), training) for training in sorted(modes)]
    check = put_requirement(graph_module, RequireModes(required, REFUSAL, advice))
    with graph_module.graph.inserting_before(first_compute(graph_module.graph)):
        graph_module.graph.call_module(check)
    held = " and ".join("training mode" if training else "evaluation mode" for training in sorted(modes))
    return [Found.MODE("the module", mode=held)]


def _training_flag(node: Node) -> bool | None:
    """Return whether an operator computes for training; ``None`` for one that has no flag that says so."""
    for position, name in enumerate(_argument_names(node.target)):
        if name in ("train", "training"):
            given = node.args[position] if position < len(node.args) else node.kwargs.get(name)
            return given if isinstance(given, bool) else None
    return False if "no_training" in str(getattr(node.target, "_schema", "")).partition("(")[0] else None


def _argument_names(target: Any) -> list[str]:
    if isinstance(target, torch._ops.OpOverload):
        return [argument.name for argument in target._schema.arguments]
    if callable(target) and getattr(target, "__module__", None) == torch.nn.functional.__name__:
        return [*inspect.signature(target).parameters]
    return []


def hold_inputs(
    graph: Graph, ranges: Mapping[sympy.Symbol, Any], guards: Iterable[sympy.Basic] = ()
) -> list[Finding]:
    """Make a graph check that inputs fit its captured placeholders; return a finding for each size.

    ``graph``: a graph whose placeholders have ``meta["val"]``. ``ranges``: the values that symbols may have,
    as torch's ``ValueRanges``. ``guards``: further conditions on the symbols.
    """
    placeholders = graph.find_nodes(op="placeholder")
    dims = [
        (_name(node, path, dim), (node, path, dim), expression_of(size))
        for node in placeholders
        for path, tensor in tensors_inside(node.meta.get("val"))
        for dim, size in enumerate(tensor.shape)
    ]
    sizes = {name: place for name, place, _ in dims}
    known: dict[sympy.Symbol, sympy.Symbol] = {}
    conditions: list[Any] = []
    findings: list[Finding] = []
    # Those that are a symbol alone come first, as others are computed from them.
    for name, _, size in sorted(dims, key=lambda entry: not isinstance(entry[2], sympy.Symbol)):
        if isinstance(size, sympy.Symbol) and size not in known:
            known[size] = name
            conditions += _range(ranges.get(size), name)
            findings.append(Found.FOLLOWED_SIZE(str(name)))
            continue
        expected = size.xreplace(known)
        if expected.free_symbols <= sizes.keys():  # else it is of a size that no input has
            conditions.append(sympy.Eq(name, expected, evaluate=False))
        words = condition_text(expected)
        is_fixed = Found.FIXED_SIZE(str(name), size=words)
        findings.append(is_fixed if size.is_number else Found.SAME_SIZE(str(name), other=words))
    for guard in guards:
        renamed = guard.xreplace(known)
        if renamed.free_symbols and renamed.free_symbols <= sizes.keys():
            conditions.append(renamed)

    def size_of(name: sympy.Symbol) -> Node:
        node, path, dim = sizes[name]
        return graph.call_method("size", (part_of(node, path), dim))

    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in placeholders:
            value = node.meta.get("val")
            if not isinstance(value, torch.SymInt) and not any(True for _ in tensors_inside(value)):
                check = RequireParts(node.name, value)
                message = f"{REFUSAL} the parts of {node.name} only"
                graph.call_function(torch._assert, (graph.call_function(check, (node,)), message))
        nodes = SizeNodes(graph, size_of, lambda node: None)
        for condition in conditions:
            holds = nodes.of_expression(condition).node
            graph.call_function(torch._assert, (holds, f"{REFUSAL} {condition_text(condition)} only"))
    return findings


def _name(node: Node, path: tuple[Any, ...], dim: int) -> sympy.Symbol:
    return sympy.Symbol(name_of_size((str(node.target), path, dim)), integer=True, nonnegative=True)


def _range(allowed: Any, name: sympy.Symbol) -> list[Any]:
    """Return the conditions on a size, but not that it is neither 0 nor 1, as ``torch.export`` assumes."""
    if allowed is None:
        return []
    conditions = []
    if allowed.lower.is_number and allowed.lower > 2:
        conditions.append(sympy.Ge(name, int(allowed.lower)))
    if allowed.upper.is_Integer:
        conditions.append(sympy.Le(name, int(allowed.upper)))
    return conditions
