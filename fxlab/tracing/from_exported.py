"""Graphs that ``torch.export`` captured, as graph modules that everything of fxlab takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen, _PyTreeCodeGen
from torch.utils import _pytree as pytree

from fxlab.models.graph_module import ensure_picklable
from fxlab.models.modes import Mode, RequireModes, first_computing, put_required
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.report import EXPORTED, REFUSAL, Finding, TraceReport
from fxlab.tracing.shapes.fake_inputs import name_of_size
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes, expression_of
from fxlab.values.nested import RequireParts, part_of, tensors_inside

_ROOT = re.compile(r"^L\['self'\]\.?|^L__self__+")


def from_exported(program: ExportedProgram) -> GraphModule:
    """Make a graph module of a program that ``torch.export.export`` captured.

    Parameters
    ----------
    program
        The program. It is left as it was; the result shares its parameters and buffers.

    Returns
    -------
    torch.fx.GraphModule
        Called like the model that was exported, and returning the same structure. Its nodes are the program's
        (ATen operators, with ``val``, ``nn_module_stack`` and ``stack_trace`` in ``node.meta``); parameters
        and buffers are ``get_attr`` nodes by their own names, and buffers that the model writes are written.
        Sizes that the program does not take raise ``AssertionError``. ``meta["trace"]`` holds the report.

    Raises
    ------
    TypeError
        If ``program`` is no exported program.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> rows = torch.export.Dim("rows")
    >>> program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: rows},))
    >>> from_exported(program)(torch.ones(7, 4)).shape
    torch.Size([7, 2])
    """
    if not isinstance(program, ExportedProgram):
        raise TypeError(
            f"program: expected a torch.export.ExportedProgram, got {type(program).__name__}. Make one with "
            "torch.export.export(model, args); to trace a model itself, call fxlab.symbolic_trace."
        )
    unlifted = program.module(check_guards=False)
    assert isinstance(unlifted, GraphModule)
    graph = unlifted.graph
    _put_placeholders_first(graph)
    _take_and_return_structures(graph)
    result = GraphModule(unlifted, graph)
    findings = [*_hold_inputs(result.graph, program), *_hold_mode(result)]
    for node in result.graph.nodes:
        if stack := node.meta.get("nn_module_stack"):
            node.meta["nn_module_stack"] = _plain(stack)
    result.recompile()
    result.meta["trace"] = TraceReport(EXPORTED, tuple(findings))
    ensure_picklable(result)
    return result


def _put_placeholders_first(graph: Graph) -> None:
    for node in reversed(graph.find_nodes(op="placeholder")):
        first = next(iter(graph.nodes))
        if node is not first:
            first.prepend(node)


def _take_and_return_structures(graph: Graph) -> None:
    """Make nodes of what torch does beside the graph: take inputs apart and put outputs together."""
    codegen = graph._codegen
    if not isinstance(codegen, _PyTreeCodeGen):
        return
    info = codegen.pytree_info
    args, kwargs = pytree.tree_unflatten(graph.find_nodes(op="placeholder"), info.in_spec)
    inputs = [*args, *kwargs.values()]
    if not all(_is_plain(value) for value in inputs):
        return
    for name, value in zip(info.orig_args, inputs, strict=True):
        _take(name, value, graph)
    output = graph.output_node()
    assert info.out_spec is not None
    structure = pytree.tree_unflatten(list(output.args[0]), info.out_spec)  # type: ignore[arg-type]
    with graph.inserting_before(output):
        output.args = (output_argument(structure, graph, lambda value: value),)
    graph.set_codegen(CodeGen())


def _take(name: str, value: Any, graph: Graph) -> None:
    """Make one placeholder of all that stand for parts of an input."""
    if isinstance(value, Node):
        value.target = name
        return
    parts = [*_parts(value)]
    first_other = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(parts[0][1] if parts else first_other):
        whole = graph.placeholder(name)
    whole.meta["val"] = pytree.tree_map_only(Node, lambda node: node.meta["val"], value)
    for path, part in parts:
        with graph.inserting_before(first_other):
            taken = part_of(whole, path)
        taken.meta = part.meta
        part.replace_all_uses_with(taken)
        graph.erase_node(part)


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Node]]:
    if isinstance(value, Node):
        yield path, value
    else:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _parts(item, (*path, key))


def _is_plain(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, Node) or (type(value) in (list, tuple, dict) and all(map(_is_plain, items)))


def _has_tensors(placeholder: Node) -> bool:
    return any(True for _ in tensors_inside(placeholder.meta.get("val")))


def _hold_mode(graph_module: GraphModule) -> list[Finding]:
    """Put a graph module in the mode that its operators have, and make it refuse the other one."""
    modes = {flag for node in graph_module.graph.nodes if (flag := _training_flag(node)) is not None}
    graph_module.train(True in modes)
    if not modes:
        return []
    required = [("the module", Mode(training), training) for training in sorted(modes)]
    advice = "Export the model in the mode in which it is to run."
    check = put_required(graph_module, RequireModes(required, REFUSAL, advice))
    with graph_module.graph.inserting_before(first_computing(graph_module.graph)):
        graph_module.graph.call_module(check)
    held = " and ".join("training mode" if training else "evaluation mode" for training in sorted(modes))
    return [Finding("mode", "the module", f"the graph holds for {held}")]


def _training_flag(node: Node) -> bool | None:
    """Return whether an operator computes for training; ``None`` for one that has no flag that says so."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in ("train", "training"):
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            return given if isinstance(given, bool) else None
    return False if "no_training" in node.target._schema.name else None


def _hold_inputs(graph: Graph, program: ExportedProgram) -> list[Finding]:
    """Make a graph check that inputs are what a program takes, and say of each size what that is."""
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
            conditions += _range(size, name, program)
            findings.append(Finding("symbolic size", str(name)))
            continue
        expected = size.xreplace(known)
        if expected.free_symbols <= sizes.keys():  # else it is of a size that no input has
            conditions.append(sympy.Eq(name, expected, evaluate=False))
        kind, words = ("fixed size", "fixed at") if size.is_number else ("symbolic size", "same as")
        findings.append(Finding(kind, str(name), f"{words} {expected}"))

    def size_of(name: sympy.Symbol) -> Node:
        node, path, dim = sizes[name]
        return graph.call_method("size", (part_of(node, path), dim))

    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in placeholders:
            if not _has_tensors(node):
                graph.call_function(RequireParts(node.name, node.meta.get("val"), REFUSAL), (node,))
        nodes = SizeNodes(graph, size_of, lambda node: None)
        for condition in conditions:
            holds = nodes.of_expression(condition).node
            graph.call_function(torch._assert, (holds, f"{REFUSAL} {condition} only"))
    return findings


def _name(node: Node, path: tuple[Any, ...], dim: int) -> sympy.Symbol:
    return sympy.Symbol(name_of_size((str(node.target), path, dim)), integer=True, nonnegative=True)


def _range(size: sympy.Symbol, name: sympy.Symbol, program: ExportedProgram) -> list[Any]:
    """Return the conditions on a size; that it is no 0 or 1 is none, as for ``torch.export`` itself."""
    allowed = program.range_constraints.get(size)
    if allowed is None:
        return []
    conditions = []
    if allowed.lower.is_number and allowed.lower > 2:
        conditions.append(sympy.Ge(name, int(allowed.lower)))
    if allowed.upper.is_Integer:
        conditions.append(sympy.Le(name, int(allowed.upper)))
    return conditions


def _plain(stack: Any) -> dict[str, tuple[str, str]]:
    """Return an ``nn_module_stack`` as :func:`symbolic_trace` writes it: module path -> path and class."""
    entries = [(_ROOT.sub("", str(path)), owner) for path, owner in stack.values()]
    return {path: (path, owner) for path, owner in entries if path and "metadata_hook" not in path}
