"""The verdict on a file: the program that it holds, compared with the model without passes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch.fx import GraphModule

from fxlab.deployment.files.tensor_graph import tensor_graph
from fxlab.deployment.files.write_file import read_file
from fxlab.front_desk.sources import SessionLike, inputs_or_examples
from fxlab.models.running.running import Inputs
from fxlab.validation import Reference
from fxlab.validation.verdicts.judgement import Judgement, Versions, judged, judged_by_bits
from fxlab.validation.verdicts.result import Verdict, summary
from fxlab.validation.verdicts.runs import Runs


def file_verdict(session: SessionLike, path: str | os.PathLike[str]) -> Verdict | None:
    """Judge a file of the present model of a session; ``None`` if no runtime for it is installed.

    A program of ``torch.export`` is judged like any model. Onnxruntime has no float64 run, so the written
    graph is judged first, and then whether the file rounds about as well.
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


def verdict_on_outputs(original: GraphModule, outputs: Mapping[str, torch.Tensor], inputs: Inputs) -> Verdict:
    """Judge outputs that were computed elsewhere, such as by onnxruntime, by those of a graph.

    Numbers alone do not show shared memory, classes or random draws. The remaining questions of
    :func:`fxlab.verdict` are answered: shapes, dtypes, integers and the places of NaN, and whether the
    outputs are about as far from the graph's float64 run as its own. Raises ValueError if the graph does not
    run on the inputs, returns no tensors, or draws random numbers that cannot be given to a float64 run.
    """
    runs = Runs(original, "original", inputs)
    expected = runs.observed.returned
    if not expected and not outputs:
        raise ValueError("original: it returns no tensors, so there is nothing to compare.")

    def judgement(path: str) -> Judgement:
        by_bits = judged_by_bits(expected.get(path), outputs.get(path))
        if by_bits is not None:
            return by_bits
        exact = runs.exact[path]
        decided = runs.moved_by_decisions.get(path)
        # An element that the original's own decisions move may be moved elsewhere too.
        return judged(Versions(expected[path], outputs[path], exact, exact, decided=decided))

    return summary({path: judgement(path) for path in dict.fromkeys([*expected, *outputs])})
