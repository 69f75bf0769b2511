"""``fxlab.export``: write the graph of a session as a file, and judge the program in it by the model."""

from __future__ import annotations

import contextlib
import io
import operator
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import Graph, GraphModule, Node

from fxlab.base.checks import file_to_write, require_bool
from fxlab.base.torch_logs import torch_logs_silent
from fxlab.base.words import error_words
from fxlab.front_desk.sources import SessionLike, checked_session, inputs_or_examples
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.generated_code import is_written_otherwise
from fxlab.models.graph_modules.parts import Requirement
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import gradients_for, run
from fxlab.operators import describes
from fxlab.operators.node_info import dtype_name
from fxlab.tracing.exported.saved_program import load_program
from fxlab.transformations import compose
from fxlab.transformations.passes.lint_and_recompile import LintAndRecompile
from fxlab.transformations.passes.remove_dead_code import RemoveDeadCode
from fxlab.validation import Reference
from fxlab.validation.arguments import check_runs
from fxlab.validation.outputs.computed_tensors import observed
from fxlab.validation.verdicts.result import Verdict
from fxlab.values import nested
from fxlab.values.nested import REFUSAL, flatten_objects, map_tensors, name_of_part, unflatten_objects
from fxlab.values.tensors import tensors_by_path


def _file_verdict(path: Path, graph: TensorGraph, reference: GraphModule) -> Verdict:
    """Judge a file of a graph by that of the model without passes, with the names of the outputs."""
    verdict = Reference(reference, graph.inputs).verdict(load_program(path, trusted=True).module())
    names = graph.output_names
    by_name = {
        names[int(place)] if place.isdecimal() else place: judgement
        for place, judgement in verdict.outputs.items()
    }
    place, colon, words = verdict.reason.partition(": ")
    reason = f"{names[int(place)]}{colon}{words}" if place.isdecimal() else verdict.reason
    return replace(verdict, outputs=by_name, reason=reason)


@dataclass(frozen=True)
class ExportedFile:
    """A file that :func:`fxlab.export` has written."""

    path: Path
    verdict: Verdict | None
    """The file on the inputs of the session, compared with the model without passes; ``None`` if not run."""
    inputs: tuple[str, ...]
    """Its inputs in their order, such as ``input_ids: int64[s0, 7]``; a symbol is a dynamic size."""
    outputs: tuple[str, ...]
    """The names of its outputs."""
    conditions: tuple[str, ...]
    """The graph's conditions on inputs, in words, which the file does not check."""


@overload
def export(
    session: SessionLike, path: None = None, *, dynamic: bool = ..., check: bool = ...
) -> ExportedProgram: ...
@overload
def export(
    session: SessionLike, path: str | os.PathLike[str], *, dynamic: bool = ..., check: bool = ...
) -> ExportedFile: ...


def export(
    session: SessionLike,
    path: str | os.PathLike[str] | None = None,
    *,
    dynamic: bool = True,
    check: bool = True,
) -> ExportedFile | ExportedProgram:
    """Write the present model of a session as a program of ``torch.export``, and judge the file.

    The file takes and returns only tensors, a single one if the model does: caches and other objects are
    taken apart, with names such as ``past_key_values_layers_0_keys``. Numbers and other arguments are fixed
    to those of the session's inputs.

    Parameters
    ----------
    session
        The session.
    path
        The file, which ends in ``.pt2``. Left out, the program is returned, and not judged;
        ``torch.onnx.export`` takes it.
    dynamic
        Whether dynamic sizes of the graph stay dynamic in the file; if not, it takes only the sizes of the
        session's inputs.
    check
        Whether to run the file and judge it.

    Returns
    -------
    ExportedFile or torch.export.ExportedProgram
        The ``verdict`` is that of the file against the model without passes.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, the model has no weights, or it writes into its inputs or buffers.
    ExportError
        If torch's exporter refuses the graph.
    OSError
        If the file cannot be written.

    Notes
    -----
    A graph refuses inputs that it was not traced for. A file keeps its conditions on sizes, as far as the
    format knows them; it loses those on data, modes and settings of torch, which ``conditions`` lists.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import Session, export
    >>> session = Session(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), torch.ones(2, 4))
    >>> _ = session.apply("remove-identities")
    >>> file = export(session, f"{tempfile.mkdtemp()}/model.pt2")
    >>> file.verdict.agrees, file.outputs
    (True, ('output',))
    >>> torch.export.load(file.path).module()(torch.ones(3, 4)).shape
    torch.Size([3, 4])
    """
    checked = checked_session(session)
    target = Path("program.pt2") if path is None else file_to_write(path, "path")
    if target.suffix != ".pt2":
        onnx = ". ONNX is written of the program: torch.onnx.export(fxlab.export(session), f=path)"
        raise ValueError(
            f"path: expected a file that ends in .pt2, got {str(path)!r}{onnx * (target.suffix == '.onnx')}."
        )
    require_bool(dynamic, "dynamic")
    require_bool(check, "check")
    transformed = checked.graph_module
    check_runs(transformed, "session")
    inputs = inputs_or_examples(checked.inputs, checked.original)
    graph = tensor_graph(transformed, inputs)
    if path is None:
        return exported(graph, dynamic=dynamic)
    words = write_file(graph, target, dynamic=dynamic)
    verdict = _file_verdict(target, graph, tensor_graph(checked.original, inputs).module) if check else None
    return ExportedFile(target, verdict, words, graph.output_names, graph.conditions)


_LOGGERS = ("torch.export", "torch._export", "torch._export.non_strict_utils")


class ExportError(RuntimeError):
    """Torch's exporter has refused a graph; the message has its first line."""

    __module__ = "fxlab"


def write_file(graph: TensorGraph, path: str | os.PathLike[str], *, dynamic: bool) -> tuple[str, ...]:
    """Write a graph as ``.pt2``; return its inputs in words, with symbols for sizes.

    ``dynamic``: whether the file takes other sizes than those of the inputs, if the graph does. Raises
    ExportError if torch's exporter refuses the graph.
    """
    program = exported(graph, dynamic=dynamic)
    with _silent():
        torch.export.save(program, path)
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    taken = [values[str(name)] for name in program.graph_signature.user_inputs]
    return tuple(
        f"{name}: {dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
        for name, value in zip(graph.input_names, taken, strict=True)
    )


def exported(graph: TensorGraph, *, dynamic: bool) -> ExportedProgram:
    """Return a graph as a program of ``torch.export``."""
    shapes: dict[str, Any] | None = None
    if dynamic and graph.inputs:
        nodes = graph.module.graph.find_nodes(op="placeholder")
        # Other tracers compute numbers by the sizes that they record, and keep the conditions to themselves.
        is_traced = "trace" in graph.module.meta
        varies = [is_traced or node.meta.keys().isdisjoint(("val", "example_value")) for node in nodes]
        shapes = {
            str(node.target): dict.fromkeys(range(tensor.ndim if may_vary else 0), Dim.AUTO)
            for node, tensor, may_vary in zip(nodes, graph.inputs, varies, strict=True)
        }
    try:
        with _silent(), gradients_for(graph.module):
            inputs = tuple(_told_apart(graph.inputs))
            program = torch.export.export(graph.module, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever torch's exporter comes to
        first = error_words(error).partition("\n")[0][:300]
        raise ExportError(f"torch.export refuses it: {first}") from error
    _check_code(program)
    return program


def _check_code(program: ExportedProgram) -> None:
    """Raise the ``ExportError`` for a node that the code of a loaded program computes otherwise."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            if is_written_otherwise(node):
                raise ExportError(
                    f"node {node.name!r} raises {node.args[0]!r} to the power {node.args[1]}. Torch's code "
                    "of a loaded program has no parentheses around the number, which loses its sign. Write "
                    "it in another way, such as 1 - 2 * (n % 2) for (-1) ** n."
                )


def _told_apart(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the inputs, copying repeated tensors: torch.export would merge the same tensor into one input."""
    seen = set[int]()
    for tensor in tensors:
        yield tensor.detach().requires_grad_(tensor.requires_grad) if id(tensor) in seen else tensor
        seen.add(id(tensor))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep exporters from printing errors that are raised anyway, or notes that concern torch alone."""
    stdout = contextlib.redirect_stdout(io.StringIO())
    with torch_logs_silent(*_LOGGERS), warnings.catch_warnings(), stdout:
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class TensorGraph:
    """A graph from tensors to tensors: other inputs and outputs are taken apart, numbers are fixed."""

    module: GraphModule
    inputs: tuple[torch.Tensor, ...]
    """The tensors that it was made for."""
    input_names: tuple[str, ...]
    """Such as ``input_ids`` and ``past_key_values_layers_0_keys``."""
    output_names: tuple[str, ...]
    """Such as ``logits`` and ``past_key_values_layers_0_keys_out``; none is also an input's."""
    conditions: tuple[str, ...]
    """The graph's conditions on inputs, in words, which a file does not check."""


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """The target of a node that puts an input together from its tensors."""

    parts: Any
    """Its parts, as :func:`flatten_objects` returns them."""
    only_reads = True
    __name__ = "rebuilt"

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Return the input."""
        left = iter(tensors)
        return unflatten_objects(map_tensors(lambda *_: next(left), self.parts))


@dataclass(frozen=True)
class TensorsIn:
    """The target of a node that returns the tensors of an output, in their order."""

    only_reads = True
    __name__ = "tensors_in"

    def __call__(self, output: Any) -> tuple[torch.Tensor, ...]:
        """Return them."""
        return tuple(tensors_by_path(output).values())


def tensor_graph(graph_module: GraphModule, inputs: Inputs) -> TensorGraph:
    """Return a graph with only tensors as inputs and outputs, and without guards that a file cannot hold.

    Guards on sizes stay: exporters turn them into limits of dynamic sizes. Others are left out, and are among
    the ``conditions``. Raises ValueError if the graph writes, returns nothing to compare, or fails.
    """
    written = observed(graph_module, "model", inputs).written
    if written:
        raise ValueError(
            f"The model writes in place ({', '.join(sorted(written)[:3])}), which a file that returns "
            "tensors does not show. Return what is written, or call the model in another mode."
        )
    module = share_tensors_copy(graph_module)
    names = [str(node.target) for node in module.graph.find_nodes(op="placeholder")]
    values = placeholder_values(graph_module, inputs)
    tensors, input_names = _flatten_inputs(module.graph, dict(zip(names, values, strict=True)))
    output_names = _flatten_outputs(module.graph, run(graph_module, inputs), input_names)
    if not output_names:
        raise ValueError("The model returns no tensors or numbers, so a file of it would be empty.")
    conditions = _without_guards(module)
    compose(RemoveDeadCode(), LintAndRecompile())(module)
    return TensorGraph(module, tuple(tensors), tuple(input_names), output_names, conditions)


def _flatten_inputs(graph: Graph, values: dict[str, Any]) -> tuple[list[torch.Tensor], list[str]]:
    tensors: list[torch.Tensor] = []
    names: list[str] = []
    for old in graph.find_nodes(op="placeholder"):
        value = values[str(old.target)]
        new: list[Node] = []

        def take(path: nested.Path, tensor: torch.Tensor, old: Node = old, new: list[Node] = new) -> Any:
            names.append(_identifier(name_of_part(str(old.target), path), names))
            tensors.append(tensor)
            new.append(graph.placeholder(names[-1]))
            return tensor.new_empty(0)

        with graph.inserting_before(old):
            parts = map_tensors(take, flatten_objects(value))
        if isinstance(value, torch.Tensor):
            new[0].meta = dict(old.meta)
            old.replace_all_uses_with(new[0])
        elif new:
            first = next(node for node in graph.nodes if node.op != "placeholder")
            with graph.inserting_before(first):
                old.replace_all_uses_with(graph.call_function(Rebuilt(parts), tuple(new)))
        else:
            _hold(old, value)
        graph.erase_node(old)
    return tensors, names


def _hold(placeholder: Node, value: Any) -> None:
    """Write a value without tensors into the arguments of its users."""
    for user in list(placeholder.users):
        user.args = torch.fx.map_arg(user.args, lambda node: value if node is placeholder else node)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda node: value if node is placeholder else node)


def _flatten_outputs(graph: Graph, output: Any, input_names: list[str]) -> tuple[str, ...]:
    node = graph.output_node()
    if not isinstance(output, torch.Tensor):
        with graph.inserting_before(node):
            node.args = (graph.call_function(TensorsIn(), (node.args[0],)),)
    names: list[str] = []
    for path in tensors_by_path(output):
        name = _identifier(path, names)
        names.append(name if name not in input_names else _identifier(f"{name}_out", [*names, *input_names]))
    return tuple(names)


def _without_guards(module: GraphModule) -> tuple[str, ...]:
    """Remove guards on anything but sizes; return their conditions."""
    conditions: dict[str, None] = {}
    for node in reversed(list(module.graph.nodes)):
        is_assert = node.op == "call_function" and node.target is torch._assert
        if is_assert and _is_of_sizes(node.args[0]):
            continue
        if is_assert and not _is_required(node.args[0], module):
            conditions[str(node.args[1]).removeprefix(REFUSAL).strip()] = None
        if is_assert or _is_required(node, module):
            module.graph.erase_node(node)
    return tuple(reversed(conditions))


def _is_required(node: Node, module: GraphModule) -> bool:
    """Tell whether a node compares modes, settings or parts of inputs."""
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), Requirement)
    name = str(getattr(node.target, "__name__", ""))
    return node.op == "call_function" and name.startswith("require_")


def _is_of_sizes(condition: Any) -> bool:
    """Tell whether a condition is computed from sizes of tensors alone."""
    pending, seen = [condition], set()
    while pending:
        node = pending.pop()
        if not isinstance(node, Node) or node in seen:
            continue
        seen.add(node)
        if describes(node):
            continue
        is_arithmetic = getattr(node.target, "__module__", "") in ("_operator", "math", "builtins", "torch")
        if node.op != "call_function" or not is_arithmetic or node.target is operator.getitem:
            return False
        pending += node.all_input_nodes
    return True


def _identifier(text: str, taken: list[str]) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "output"
    name = f"_{name}" if name[0].isdigit() else name
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
