"""Judge one batch for ``evaluate``: both models run on it and are compared."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from fxlab.validation.evaluation.agreement import Measured, Metric, decisions, own_metrics
from fxlab.validation.evaluation.batch_inputs import elements_of, inputs_of_batch
from fxlab.validation.verdicts.comparison import RunsCompared
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.result import Verdict
from fxlab.validation.verdicts.verdict import Reference

REFUSED, FAILED = "refused", "failed"
"""A batch that the original's graph refuses; and one on which nothing can be told, for an error."""


@dataclass(frozen=True)
class Work:
    """The models and settings that every batch is judged with."""

    original: GraphModule
    transformed: GraphModule
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class BatchResult:
    """The result for one batch."""

    number: int
    """From 0 on, so that it is ``batches[number]``."""
    status: str
    reason: str
    elements: int
    verdict: Verdict | None = None
    max_abs_diff: float = math.nan
    worst_output: str = ""
    worst_index: tuple[int, ...] = ()
    """Where the largest difference is."""
    measures: dict[str, Measured] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    """The parts of the batch that the model does not receive."""

    @property
    def ratio(self) -> float:
        """The error relative to the original's rounding; NaN if that is not known."""
        ratio = None if self.verdict is None else self.verdict.ratio
        return math.nan if ratio is None else ratio


def judged_batch(work: Work, number: int, batch: Any) -> BatchResult:
    """Judge two models on a batch; an error of a model becomes the result."""
    inputs, left = inputs_of_batch(work.original, batch)
    elements = elements_of(inputs)

    def without(status: str, error: Exception) -> BatchResult:
        verdict = Verdict(Status.DIFFERENT, str(error), None, {}) if status == Status.DIFFERENT else None
        return BatchResult(number, str(status), str(error), elements, verdict, left=left)

    try:
        comparison = Reference(work.original, inputs).compare(work.transformed)
    except ValueError as error:
        if str(error).startswith("transformed:"):
            return without(Status.DIFFERENT, error)
        return without(REFUSED if isinstance(error.__cause__, AssertionError) else FAILED, error)
    try:
        verdict = comparison.verdict()
        measures = _measures(work, comparison, batch, elements)
    except (ValueError, RuntimeError) as error:
        return without(FAILED, error)
    largest, output, index = _largest_difference(comparison)
    return BatchResult(
        number, str(verdict.status), verdict.reason, elements, verdict, largest, output, index, measures, left
    )


def _measures(work: Work, comparison: RunsCompared, batch: Any, elements: int) -> dict[str, Measured]:
    ours, theirs = comparison.outputs
    return decisions(ours, theirs, batch) | own_metrics(work.metrics, ours, theirs, batch, elements)


def _largest_difference(comparison: RunsCompared) -> tuple[float, str, tuple[int, ...]]:
    rows = {name: row for name, row in comparison.rows.items() if not math.isnan(row["max_abs_diff"])}
    if not rows:
        return math.nan, "", ()
    output = max(rows, key=lambda name: float(rows[name]["max_abs_diff"]))
    return rows[output]["max_abs_diff"], output, rows[output]["worst_index"] or ()
