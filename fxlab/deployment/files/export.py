"""Write the graph of a session as a file, and judge the file by the model."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from torch.export import ExportedProgram

from fxlab.base.checks import file_to_write, require_bool
from fxlab.deployment.files.judge_file import file_verdict
from fxlab.deployment.files.tensor_graph import tensor_graph
from fxlab.deployment.files.write_file import SUFFIXES, exported, missing_package, write_file
from fxlab.front_desk.sources import SessionLike, checked_session, inputs_or_examples
from fxlab.validation import Verdict
from fxlab.validation.arguments import check_runs


@dataclass(frozen=True)
class ExportedFile:
    """A file that :func:`fxlab.export` has written."""

    path: Path
    verdict: Verdict | None
    """The file on the session's inputs, compared with the model without passes; ``None`` if it was not run,
    as onnxruntime is not installed."""
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
    """Write the present model of a session as a program of ``torch.export`` or as ONNX, and judge the file.

    The file takes and returns only tensors, a single one if the model does: caches and other objects are
    taken apart, with names such as ``past_key_values_layers_0_keys``. Numbers and other arguments are fixed
    to those of the session's inputs.

    Parameters
    ----------
    session
        The session.
    path
        The file. Its suffix is the format: ``.pt2`` or ``.onnx``. Left out, the program is returned, and not
        judged.
    dynamic
        Whether dynamic sizes of the graph stay dynamic in the file; if not, it takes only the sizes of the
        session's inputs.
    check
        Whether to run the file and judge it.

    Returns
    -------
    ExportedFile or torch.export.ExportedProgram
        The ``verdict`` is that of the file, run by torch or onnxruntime, against the model without passes.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, the model has no weights, or it writes into its inputs or buffers.
    ImportError
        If ONNX is asked for and onnxscript is not installed.
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
    if target.suffix not in SUFFIXES:
        raise ValueError(f"path: expected a file that ends in .pt2 or .onnx, got {str(path)!r}.")
    require_bool(dynamic, "dynamic")
    require_bool(check, "check")
    if missing := missing_package(target.suffix):
        raise ImportError(f"{missing}.")
    transformed = checked.graph_module
    check_runs(transformed, "session")
    inputs = inputs_or_examples(checked.inputs, checked.original)
    graph = tensor_graph(transformed, inputs)
    if path is None:
        return exported(graph, dynamic=dynamic)
    words = write_file(graph, target, dynamic=dynamic)
    verdict = file_verdict(checked, target) if check else None
    return ExportedFile(target, verdict, words, graph.output_names, graph.conditions)
