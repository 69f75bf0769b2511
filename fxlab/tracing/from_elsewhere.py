"""Graphs that fxlab has not traced: exported programs, files of them, and graphs that Dynamo captured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule

from fxlab.base.checks import describe
from fxlab.base.torch_private import pytree
from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.running.running import Inputs, named_arguments
from fxlab.models.running.step_record import StepInput
from fxlab.tracing.dynamo.capture import Capture, CapturedGraph
from fxlab.tracing.exported.from_exported import from_exported
from fxlab.tracing.exported.saved_program import SUFFIX, load_program
from fxlab.tracing.model_code.given_model import refuse_torch_script
from fxlab.tracing.report import TraceError
from fxlab.tracing.torch_private import FakeTensor


def graph_from_elsewhere(model: object, name: str) -> tuple[GraphModule, Inputs | None]:
    """Return the graph of an argument that is not a module, and the inputs that come with it.

    Raises TypeError if it is neither a program, the path of one, nor a captured graph; OSError or ValueError
    if the file cannot be read, is broken, or could run code when it is loaded.
    """
    if isinstance(model, CapturedGraph):
        return model.graph_module, model.inputs
    if isinstance(graph := getattr(model, "gm", None), GraphModule) and hasattr(model, "state_fqns"):
        return of_flat_step(graph, model), None
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


def of_flat_step(graph_module: GraphModule, result: Any) -> GraphModule:
    """Return a copy of a graph whose first inputs are the state of a model, with their paths noted.

    Tracers of training steps give such results: ``gm``, ``state_fqns`` (paths of parameters and buffers) and
    ``input_subclass_layouts`` (how many inputs stand for one tensor of several parts, by its place).
    """
    copy = share_tensors_copy(graph_module)
    layouts = getattr(result, "input_subclass_layouts", None) or {}
    placeholders = iter(copy.graph.find_nodes(op="placeholder"))
    for place, path in enumerate(result.state_fqns):
        for _ in range(getattr(layouts.get(place), "num_tensors", 1)):
            node = next(placeholders, None)
            if node is not None:
                node.meta.setdefault("desc", StepInput("parameter", path, path))
    return copy


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
