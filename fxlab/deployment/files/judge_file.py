"""The verdict on a file: what runs it, judged by the model without passes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fxlab.deployment.files.tensor_graph import tensor_graph
from fxlab.deployment.files.write_file import read_file
from fxlab.sources import SessionLike, inputs_or_examples
from fxlab.validation import Reference, Verdict
from fxlab.validation.verdicts.run_elsewhere import verdict_on_outputs


def file_verdict(session: SessionLike, path: str | os.PathLike[str]) -> Verdict | None:
    """Judge a file that was written of the present model of a session, by the model without passes.

    A program of ``torch.export`` is judged as any model. What onnxruntime computes has no float64 run, so
    that the graph that was written is judged first, and then whether the file rounds about as well.

    Returns
    -------
    Verdict or None
        ``None`` if what runs the file is not installed.
    """
    inputs = inputs_or_examples(session.inputs, session.original)
    graph = tensor_graph(session.graph_module, inputs)
    runs_file = read_file(path, graph)
    if runs_file is None:
        return None
    reference = tensor_graph(session.original, inputs).module
    if Path(path).suffix == ".pt2":
        return _named(Reference(reference, graph.inputs).verdict(runs_file), graph.output_names)
    written = Reference(reference, graph.inputs).verdict(graph.module)
    if not written.agrees:
        return _named(written, graph.output_names)
    with torch.no_grad():
        outputs = runs_file(*graph.inputs)
    paths = [*map(str, range(len(outputs)))] if len(outputs) > 1 else [*written.outputs]
    found = verdict_on_outputs(reference, dict(zip(paths, outputs, strict=True)), graph.inputs)
    own = "in float64 the graph was judged that it was written of, not the file"
    return _named(replace(found, reason=f"{found.reason}; {own}"), graph.output_names)


def _named(verdict: Verdict, names: Sequence[str]) -> Verdict:
    """Return a verdict on outputs by place with their names."""
    by_name = {
        names[int(place)] if place.isdecimal() else place: judgement
        for place, judgement in verdict.outputs.items()
    }
    place, colon, words = verdict.reason.partition(": ")
    reason = f"{names[int(place)]}{colon}{words}" if place.isdecimal() else verdict.reason
    return replace(verdict, outputs=by_name, reason=reason)
