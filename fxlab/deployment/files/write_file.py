"""Graphs written as programs of ``torch.export`` and as ONNX, and run again from there."""

import contextlib
import importlib.util
import io
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from fxlab.base.author_frames import error_words
from fxlab.deployment.files.tensor_graph import TensorGraph
from fxlab.models.graph_modules.generated_code import is_written_otherwise
from fxlab.models.running.running import gradients_for
from fxlab.operators.node_info import dtype_name

SUFFIXES = (".pt2", ".onnx")
_LOGGERS = (
    *("torch.export", "torch._export", "torch._export.non_strict_utils"),
    *("torch.onnx", "onnxscript", "onnx_ir"),
)
_MOST_IN_ONE_FILE = 1_500_000_000
"""The most bytes of weights in the file; protobuf holds less than 2 GB, so more go to a file beside it."""


class ExportError(RuntimeError):
    """Torch's exporter has refused a graph; the message has its first line."""

    __module__ = "fxlab"


def missing_package(suffix: str) -> str:
    """Name the package to install for writing such files, and how; empty if none is missing."""
    if suffix != ".onnx" or importlib.util.find_spec("onnxscript") is not None:
        return ""
    return (
        "writing ONNX needs the packages onnx and onnxscript, and checking it onnxruntime: "
        "pip install onnx onnxscript onnxruntime"
    )


def write_file(graph: TensorGraph, path: str | os.PathLike[str], *, dynamic: bool) -> tuple[str, ...]:
    """Write a graph as ``.pt2`` or ``.onnx``; return its inputs in words, with symbols for sizes.

    ``dynamic``: whether the file takes other sizes than those of the inputs, if the graph does. Raises
    ExportError if torch's exporter refuses the graph.
    """
    program = exported(graph, dynamic=dynamic)
    if Path(path).suffix == ".pt2":
        with _silent():
            torch.export.save(program, path)
    else:
        _write_onnx(program, graph, Path(path))
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
        raise ExportError(f"torch.export refuses it: {_first_line(error)}") from error
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


def _write_onnx(program: ExportedProgram, graph: TensorGraph, path: Path) -> None:
    weights = sum(tensor.nbytes for tensor in (*program.state_dict.values(), *program.constants.values()))
    try:
        with _silent(), torch.no_grad():
            torch.onnx.export(
                program,
                f=path,
                dynamo=True,
                input_names=graph.input_names,
                output_names=graph.output_names,
                external_data=weights > _MOST_IN_ONE_FILE,
                verbose=False,
            )
    except OSError:
        raise
    except Exception as error:
        raise ExportError(f"torch.onnx refuses it: {_first_line(error)}") from error


def read_file(path: str | os.PathLike[str], graph: TensorGraph) -> nn.Module | None:
    """Return a module that runs a file; ``None`` if no runtime for it is installed."""
    if Path(path).suffix == ".pt2":
        from fxlab.tracing.exported.saved_program import load_program

        return load_program(path, trusted=True).module()
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    return OnnxModule(path, graph)


class OnnxModule(nn.Module):
    """Runs an ONNX file in onnxruntime, on the CPU."""

    def __init__(self, path: str | os.PathLike[str], graph: TensorGraph) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        try:
            self._session = onnxruntime.InferenceSession(os.fspath(path), options, providers=providers)
        except Exception as error:  # its own classes, for operators without a kernel
            raise ExportError(f"onnxruntime refuses the file: {_first_line(error)}") from error
        self._names, self._outputs = graph.input_names, graph.output_names

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs; ValueError if onnxruntime fails, or NumPy has no such dtype (bfloat16)."""
        # An exporter leaves inputs out that nothing reads.
        known = {value.name for value in self._session.get_inputs()}
        given = dict(zip(self._names, tensors, strict=True))
        try:
            feeds = {name: tensor.numpy(force=True) for name, tensor in given.items() if name in known}
            found = self._session.run(list(self._outputs), feeds)
        except Exception as error:
            raise ValueError(
                f"The file was written, but onnxruntime does not run it: {_first_line(error)}. "
                "check=False does not try."
            ) from error
        return tuple(torch.from_numpy(array) for array in found)


def _first_line(error: Exception) -> str:
    return error_words(error).partition("\n")[0][:300]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep exporters from printing errors that are raised anyway, or notes that concern torch alone."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
