"""Verdicts on what other programs compute, which cannot be run in float64."""

from collections.abc import Mapping

import torch
from torch.fx import GraphModule

from fxlab.models.running import Inputs
from fxlab.validation.verdicts.comparison import Verdict, summary
from fxlab.validation.verdicts.judgement import Judgement, Versions, judged, judged_by_bits
from fxlab.validation.verdicts.runs import Runs


def verdict_on_outputs(original: GraphModule, outputs: Mapping[str, torch.Tensor], inputs: Inputs) -> Verdict:
    """Judge outputs that were computed elsewhere, such as by onnxruntime, by those of a graph.

    Whether it is the same function is not asked, as that takes a float64 run of both, nor what else the call
    is (memory that is shared, classes, random numbers), as only numbers come back. The other questions of
    :func:`fxlab.verdict` are: shapes, dtypes, integers and the places of NaN, and whether the outputs are
    about as far from the graph's float64 run as its own. Raises ValueError if the graph does not run on the
    inputs, returns no tensors, or draws random numbers that cannot be given to a float64 run.
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
