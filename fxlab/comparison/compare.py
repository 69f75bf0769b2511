"""``fxlab.compare`` and ``assert_same``: two models of any origin, and the place where they part."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from fxlab.base.checks import file_to_write, require_bool
from fxlab.base.words import listed
from fxlab.comparison.backward import backward_of
from fxlab.comparison.comparison import Comparison
from fxlab.comparison.pairing import checked_outputs, given_models, paired_inputs, trained_alike
from fxlab.comparison.recorded.compare_recorded import compare_recorded, is_recorded
from fxlab.comparison.recorded.recorded_run import RecordedRun
from fxlab.comparison.weights import SAME, WRONG, find_weights
from fxlab.front_desk.sources import Model
from fxlab.html_report.report import report as write_report
from fxlab.models.running.arguments import Inputs
from fxlab.operators.node_info import dtype_name
from fxlab.validation.alignment.align import align_sides, paired_paths
from fxlab.validation.alignment.side import Noted, Side
from fxlab.validation.outputs.compare_outputs import Counterparts, same_tensors
from fxlab.validation.outputs.computed_tensors import GRADIENT
from fxlab.validation.verdicts.judgement import Judgement, Status
from fxlab.validation.verdicts.result import Verdict, summary
from fxlab.validation.verdicts.runs import Runs
from fxlab.validation.verdicts.runs_compared import RunsCompared


def compare(
    reference: Model | RecordedRun,
    candidate: Model | RecordedRun,
    inputs: Inputs | None = None,
    *,
    candidate_inputs: Inputs | None = None,
    outputs: Mapping[str | int, str | int] | None = None,
    gradients: bool = False,
) -> Comparison:
    """Compare two models of any origin: whether they compute the same, and where they begin to differ.

    A port by hand beside its reference, a merged, exported, compiled or quantized copy, another kind of
    attention, another version: neither names nor structure need to agree. Both run in float64, nodes are
    aligned by their values, and a place is named only if its inputs agree and its results do not. If the
    outputs agree, no place is named, whether the inside differs or not. Writes into inputs that both were
    given, and into weights and buffers, are outputs as well; ``notes`` name those that have no counterpart.

    Parameters
    ----------
    reference, candidate
        A module or function, which is traced; a graph module or exported program. One that runs code of
        ``torch.compile`` is run as it is called, and its outputs, writes and gradients are compared. Or runs
        that :func:`fxlab.runs.record_run` recorded, or their files; a model compared with a run is recorded
        here, on ``inputs``.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those of a
        session or program, or made from the configuration of the reference.
    candidate_inputs
        The inputs of the candidate. Left out, the same: by name, or else in their order; in the dtype of its
        weights, if those of the reference have another, which then gets the inputs rounded alike.
    outputs
        Output of the reference -> output of the candidate, by path or place, such as ``{"logits": 0}``. Left
        out, those of the same path are compared, and others in their order.
    gradients
        Whether to compare the gradients of inputs and parameters as well: of outputs times random numbers.
        If only these differ, the first place is that of the first differing gradient on the way back.

    Returns
    -------
    Comparison
        True if the outputs agree. ``str()`` of it names the first place and the weights that differ.

    Raises
    ------
    TypeError
        If one of the two is not a model, or ``inputs`` or ``outputs`` are not of these forms.
    ValueError
        If a model has no weights, does not run on its inputs, or has no such output; or if a node draws
        random numbers that cannot be given to a float64 run.

    Examples
    --------
    >>> from torch import nn
    >>> from torch.nn import functional as F
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
    ...
    ...     def forward(self, x):
    ...         return x + self.down(F.gelu(self.up(x)))
    >>> class Port(nn.Module):
    ...     def __init__(self, block):
    ...         super().__init__()
    ...         self.w1, self.b1 = nn.Parameter(block.up.weight.T.clone()), block.up.bias
    ...         self.w2, self.b2 = nn.Parameter(block.down.weight.T.clone()), block.down.bias
    ...
    ...     def forward(self, hidden):
    ...         inner = F.gelu(hidden @ self.w1 + self.b1, approximate="tanh")
    ...         return inner @ self.w2 + self.b2 + hidden
    >>> block = Block()
    >>> found = compare(block, Port(block), torch.randn(3, 4))
    >>> found.agrees, found.first.nodes, found.first.reference_nodes
    (False, ('gelu',), ('gelu',))
    """
    if is_recorded(reference) or is_recorded(candidate):
        others = candidate_inputs, outputs, require_bool(gradients, "gradients")
        return compare_recorded(reference, candidate, inputs, *others)
    first, second, left = given_models(reference, candidate, inputs, candidate_inputs)
    compared = find_weights(first.holder, second.holder)
    is_called = first.is_compiled or second.is_compiled
    ours_trained = theirs_trained = None
    if require_bool(gradients, "gradients") and is_called:
        ours_trained, theirs_trained = trained_alike(first, second, compared)
    runs = (
        Runs(first.graph, "reference", first.inputs, ours_trained).beside(second.graph),
        Runs(second.graph, "candidate", second.inputs, theirs_trained).beside(first.graph),
    )
    returned = [each.observed.returned for each in runs]
    pairs = checked_outputs(outputs, *returned)
    if pairs is None:
        pairs = paired_paths(*({path: t.numel() for path, t in each.items()} for each in returned))
    if not pairs:
        raise ValueError("outputs: one of the models returns no tensors, so there is nothing to compare.")
    given = paired_inputs(first, second)
    judged, found = _verdict(runs, pairs, given)
    rounds = not compared or any(weight.status not in (*SAME, *WRONG) for weight in compared)
    if is_called:
        ours, theirs = (_side(each, is_rounded=found.agrees) for each in judged.runs)
    else:
        ours = Side.of_runs(judged.runs[0], second.graph if rounds else None)
        theirs = Side.of_runs(judged.runs[1], first.graph if rounds else None)
    wrong = [weight.candidate for weight in compared if weight.status in WRONG]
    alignment = align_sides(ours, theirs, pairs, wrong)
    if is_called:  # of which only results are known, so that no place in it is named
        alignment = replace(alignment, parted=[], parted_original=[])
    backward = None
    if gradients and not is_called:
        backward = backward_of(alignment, compared)
        known = {GRADIENT + name: judgement for name, judgement in backward.judgements.items()}
        found = _with(found, known)
    notes = *first.notes, *second.notes, *_writes_left(runs, judged.runs)
    return Comparison(
        alignment, found, compared, left, first.inputs, second.inputs, backward, notes, is_called
    )


def _side(runs: Runs, *, is_rounded: bool) -> Side:
    return Side.of_call(runs, is_rounded=is_rounded) if runs.is_generated else Side.of_runs(runs, None)


def _writes_left(runs: tuple[Runs, Runs], judged: tuple[Runs, Runs]) -> Iterator[str]:
    """Yield the tensors that one of the models writes in place and the other has no counterpart of."""
    for name, own, compared in zip(("reference", "candidate"), runs, judged, strict=True):
        rows = own.observed.written
        if left := [row for row in rows if not compared.names.has_counterpart(row)]:
            yield f"not compared, without a counterpart: {listed(left)} of the {name}"


def _verdict(
    runs: tuple[Runs, Runs], pairs: Mapping[str, str], given: Mapping[str, str]
) -> tuple[RunsCompared, Verdict]:
    """Judge the outputs that are compared; of other dtypes, whether they are the same function.

    ``given``: name of an input of the candidate -> that of the reference, whose writes are compared as well.
    """
    (reference, candidate), (ours, theirs) = runs, (each.observed.returned for each in runs)
    dtypes = {path: (ours[path].dtype, theirs[other].dtype) for path, other in pairs.items()}
    cast = {
        path: torch.promote_types(*both)
        for path, both in dtypes.items()
        if both[0] != both[1] and all(dtype.is_floating_point or dtype.is_complex for dtype in both)
    }
    graphs = reference.graph_module, candidate.graph_module
    inputs, names = {name: name for name in given.values()}, {other: path for path, other in pairs.items()}
    own = Counterparts(inputs, same_tensors(graphs[0], graphs[0]), {path: path for path in pairs}, cast)
    others = Counterparts(given, same_tensors(*graphs), names, cast)
    judged = RunsCompared(reference.named(own), candidate.named(others))
    for each in judged.runs:
        each.visit = Noted()  # the run that is judged is aligned, too
    found = judged.verdict()
    excused = {path: _in_another_dtype(found.outputs[path], *dtypes[path]) for path in cast}
    return judged, _with(found, excused) if excused else found


def _with(verdict: Verdict, judgements: dict[str, Judgement]) -> Verdict:
    """Return the verdict that these judgements make of another."""
    anew = summary(verdict.outputs | judgements, verdict.in_own_dtype)
    return replace(anew, notes=verdict.notes, settings=verdict.settings)


def _in_another_dtype(judgement: Judgement, ours: torch.dtype, theirs: torch.dtype) -> Judgement:
    """Return the judgement of an output that has another dtype, which rounds as it has to."""
    if judgement.status is Status.SAME_BITS:
        return judgement
    if judgement.errors is None or not judgement.errors.same_function:
        return judgement
    reason = f"the same function, in {dtype_name(theirs)} for {dtype_name(ours)}: {judgement.reason}"
    return replace(judgement, status=Status.WITHIN_ROUNDING, reason=reason)


def assert_same(
    reference: Model,
    candidate: Model,
    inputs: Inputs | None = None,
    *,
    report: str | os.PathLike[str] | None = None,
    candidate_inputs: Inputs | None = None,
    outputs: Mapping[str | int, str | int] | None = None,
    gradients: bool = False,
) -> None:
    """Raise an ``AssertionError`` that names the first difference, unless two models compute the same.

    Parameters
    ----------
    reference, candidate, inputs, candidate_inputs, outputs, gradients
        As for :func:`fxlab.compare`.
    report
        The HTML file to write if they differ.

    Raises
    ------
    AssertionError
        If they differ: the differing outputs, the place where that begins, and weights that differ.
    TypeError, ValueError, OSError
        If ``report`` is no HTML file in a folder that exists, also of models that are the same.

    Examples
    --------
    >>> import torch
    >>> linear = torch.nn.Linear(4, 2)
    >>> assert_same(linear, lambda x: x @ linear.weight.T + linear.bias, torch.ones(3, 4))
    """
    if report is not None:  # first: its error must not take the place of the difference
        file_to_write(report, "report", ".html", ".htm")
    found = compare(
        reference, candidate, inputs, candidate_inputs=candidate_inputs, outputs=outputs, gradients=gradients
    )
    if not found.agrees:
        where = f"\nReport: {write_report(found.session, report)}" if report is not None else ""
        raise AssertionError(f"{found}{where}")
