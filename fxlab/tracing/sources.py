"""The forms in which a model is given: a module, a graph of any kind, an exported program, a file of one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from inspect import isroutine
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Graph
from torch.utils import _pytree as pytree

from fxlab.checks import described
from fxlab.models.running import Inputs, named_arguments
from fxlab.tracing.dynamo.capture import Capture, CapturedGraph
from fxlab.tracing.exported.from_exported import from_exported
from fxlab.tracing.exported.saved_program import SUFFIX, load_program
from fxlab.tracing.model_code.attributes import refuse_torch_script


@dataclass(frozen=True)
class Source:
    """A module, traced or to be traced, and what it is to be run on if that comes with it."""

    module: torch.nn.Module
    inputs: Inputs | None = None


ModelLike: TypeAlias = torch.nn.Module | ExportedProgram | CapturedGraph | Source | str | os.PathLike[str]
"""A model in any of the forms that :func:`source_of` takes."""


def source_of(model: Any, name: str = "model") -> Source:
    """Return what a ``model`` argument stands for; this is where it is decided.

    Parameters
    ----------
    model
        A module; a ``torch.fx.GraphModule`` of any kind, which is taken as it is; a
        :class:`fxlab.CapturedGraph`; a ``torch.export.ExportedProgram``, or the path of one that
        ``torch.export.save`` wrote.
    name
        The argument, for the words of an error.

    Raises
    ------
    TypeError
        If it is none of these, or what ``torch.jit`` made.
    OSError, ValueError
        If the file cannot be read, is broken, or could run code when it is loaded.

    Examples
    --------
    >>> program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    >>> source_of(program).inputs[0].shape
    torch.Size([3, 4])
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, CapturedGraph):
        return Source(model.graph_module, model.inputs)
    refuse_torch_script(model, name)
    if isinstance(model, torch.nn.Module):
        return Source(model)
    if isinstance(model, ExportedProgram):
        return of_program(model)
    if isinstance(model, os.PathLike) or (isinstance(model, str) and model.endswith(SUFFIX)):
        if not os.fspath(model).endswith(SUFFIX):
            raise ValueError(f"{name}: expected a file that ends in {SUFFIX}, got {os.fspath(model)!r}.")
        return of_program(load_program(model))
    raise no_model(model, name)


def of_program(program: ExportedProgram) -> Source:
    """Return the graph of a program, and the inputs that it was exported with, if it has them."""
    module = from_exported(program)
    args, kwargs = program.example_inputs or ((), {})
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not (args or kwargs) or any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return Source(module)
    return Source(module, named_arguments(module, tuple(args), kwargs) if kwargs else tuple(args))


def no_model(value: object, name: str) -> TypeError:
    """Return the error of an argument that is no model in any form."""
    advice = "Load or build the model first."
    if isinstance(value, Capture):
        advice = f"Give one of its graphs: {name}.graphs[0]."
    elif isinstance(value, Graph):
        advice = f"Give its module, or make one: torch.fx.GraphModule(root, {name})."
    elif isroutine(value):
        advice = f"Give a graph of it: torch.fx.experimental.proxy_tensor.make_fx({name})(*inputs)."
    return TypeError(
        f"{name}: expected a torch.nn.Module, a torch.fx.GraphModule, a torch.export.ExportedProgram, "
        "the path of a "
        f"{SUFFIX} file or an fxlab.Session, got {described(value)}. {advice}"
    )
