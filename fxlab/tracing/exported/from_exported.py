"""Graphs that fxlab has not traced, for models given so: exported programs, files, graphs of Dynamo."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from fxlab.base.checks import describe
from fxlab.base.torch_private import pytree
from fxlab.models.graph_modules.generated_code import SafeCodeGen, protect
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.models.graph_modules.parts import close_containers, give_naming, new_naming
from fxlab.models.running.arguments import Inputs, named_arguments
from fxlab.operators.node_info import model_path
from fxlab.tracing.dynamo.capture import Capture, CapturedGraph
from fxlab.tracing.exported.saved_program import SUFFIX, load_program
from fxlab.tracing.model_code.given_model import refuse_torch_script
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.report import EXPORTED, TraceError, TraceReport
from fxlab.tracing.shapes.held_inputs import hold_inputs, hold_mode
from fxlab.tracing.torch_private import FakeTensor, PyTreeCodeGen
from fxlab.values.nested import part_of

_ADVICE = "Export the model in the mode in which it is to run."


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
        If ``program`` is not an exported program.

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
    # In place of torch's guards, `hold_inputs` adds checks.
    unlifted = program.module(check_guards=False)
    assert isinstance(unlifted, GraphModule)
    graph = unlifted.graph
    _put_placeholders_first(graph)
    _take_and_return_structures(graph)
    result = GraphModule(unlifted, protect(graph))
    findings = [*hold_inputs(result.graph, program.range_constraints), *hold_mode(result, _ADVICE)]
    for node in result.graph.nodes:
        if stack := node.meta.get("nn_module_stack"):
            node.meta["nn_module_stack"] = _plain(stack)
    result.recompile()
    result.meta["trace"] = TraceReport(EXPORTED, tuple(findings))
    give_naming(result, new_naming())
    close_containers(result)
    ensure_picklable(result)
    return result


def _put_placeholders_first(graph: Graph) -> None:
    for node in reversed(graph.find_nodes(op="placeholder")):
        first = next(iter(graph.nodes))
        if node is not first:
            first.prepend(node)


def _take_and_return_structures(graph: Graph) -> None:
    """Make nodes of the work that torch does around the graph: take inputs apart, put outputs together."""
    codegen = graph._codegen
    if not isinstance(codegen, PyTreeCodeGen):
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
    graph.set_codegen(SafeCodeGen())


def _take(name: str, value: Any, graph: Graph) -> None:
    """Make one placeholder of those that stand for parts of an input."""
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


def _plain(stack: Any) -> dict[str, tuple[str, str]]:
    """Return an ``nn_module_stack`` as :func:`symbolic_trace` writes it: module path -> path and class."""
    entries = [(model_path(str(path)), owner) for path, owner in stack.values()]
    return {path: (path, owner) for path, owner in entries if path and "metadata_hook" not in path}


def graph_from_elsewhere(model: object, name: str) -> tuple[GraphModule, Inputs | None]:
    """Return the graph of an argument that is not a module, and the inputs that come with it.

    Raises TypeError if it is neither a program, the path of one, nor a captured graph; OSError or ValueError
    if the file cannot be read, is broken, or could run code when it is loaded.
    """
    if isinstance(model, CapturedGraph):
        return model.graph_module, model.inputs
    if isinstance(model, TraceError) and model.graph_module is not None:
        return model.graph_module, None
    refuse_torch_script(model, name)
    if isinstance(model, ExportedProgram):
        return of_program(model)
    if isinstance(model, os.PathLike) or (isinstance(model, str) and model.endswith(SUFFIX)):
        if not os.fspath(model).endswith(SUFFIX):
            raise ValueError(f"{name}: expected a file that ends in {SUFFIX}, got {os.fspath(model)!r}.")
        return of_program(load_program(model))
    raise _no_model(model, name)


def of_program(program: ExportedProgram) -> tuple[GraphModule, Inputs | None]:
    """Return the graph of a program, and the inputs that it was exported with, if it has them."""
    module = from_exported(program)
    args, kwargs = program.example_inputs or ((), {})
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not (args or kwargs) or any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return module, None
    return module, named_arguments(module, tuple(args), kwargs) if kwargs else tuple(args)


def _no_model(value: object, name: str) -> TypeError:
    advice = "Load or build the model first."
    if isinstance(value, Capture):
        advice = f"Give one of its graphs: {name}.graphs[0]."
    elif isinstance(value, str) and value.endswith((".pt", ".pth", ".bin", ".pkl", ".ckpt", ".safetensors")):
        advice = "Load it first: torch.load(path, weights_only=False) runs code that a pickled module brings."
    elif isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".onnx"):
        advice = "ONNX files are not read: give the model of the file."
    elif isinstance(getattr(value, "sessions", None), Mapping):
        advice = f"Give one of {name}.sessions; fxlab.report({name}.sessions, path) takes all of them."
    elif isinstance(value, Graph):
        advice = f"Give its module, or make one: torch.fx.GraphModule(root, {name})."
    return TypeError(
        f"{name}: expected a torch.nn.Module, a function, a torch.fx.GraphModule, an ExportedProgram, "
        f"the path of a {SUFFIX} file or an fxlab.Session, got {describe(value)}. {advice}"
    )
