"""Judge one batch for ``evaluate``: its parts, both models run on it, and counts of how often they agree."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.fx import GraphModule

from fxlab.base.checks import describe
from fxlab.models.running.arguments import Inputs
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.result import Verdict
from fxlab.validation.verdicts.runs_compared import RunsCompared
from fxlab.validation.verdicts.verdict import Reference
from fxlab.values.nested import flatten_objects, map_tensors, unflatten_objects
from fxlab.values.tensors import tensor_leaves

Outputs: TypeAlias = dict[str, torch.Tensor]
"""Outputs by path."""

Metric: TypeAlias = Callable[[Any, Any], Any]
"""Takes the outputs of a model (a tensor, or a mapping of several by path) and the batch; gives a number."""

TOP = 5
SHARE, MEAN = "share", "mean"


@dataclass(frozen=True)
class Measured:
    """One measure on one batch."""

    kind: str
    """``share`` or ``mean``."""
    total: float
    """How many agree, or the value itself."""
    count: float
    """Of how many decisions; or the weight of the value."""


def decisions(ours: Outputs, theirs: Outputs, batch: Any) -> dict[str, Measured]:
    """Count the decisions that two models make alike, and those whose five best classes are the same.

    Outputs with classes are those whose path ends in ``logits``; if there are none, all floating outputs of
    two to five dimensions. Classes lie along the last axis, or along the second where there are four
    dimensions or more. A position that the batch's ``attention_mask`` excludes does not count, nor does one
    with a number that is NaN in either model.
    """
    found = {}
    for path in _with_classes(ours, theirs):
        a, b = (x.movedim(1, -1) if x.dim() > 3 else x for x in (ours[path], theirs[path]))
        count = ~(a.isnan() | b.isnan()).any(-1)
        mask = _mask(batch, count.shape)
        count = count if mask is None else count & mask
        same = a.argmax(-1) == b.argmax(-1)
        found[f"top-1 of {path}"] = _share(same, count)
        if a.shape[-1] > TOP:
            best = [x.topk(TOP, dim=-1).indices.sort(dim=-1).values for x in (a, b)]
            found[f"top-{TOP} of {path}"] = _share((best[0] == best[1]).all(-1), count)
    return found


def own_metrics(
    metrics: Mapping[str, Metric], ours: Outputs, theirs: Outputs, batch: Any, elements: int
) -> dict[str, Measured]:
    """Ask the person's metrics of both models, and how far apart they are.

    Raises ValueError if one raises, or gives no number; it is named.
    """
    found = {}
    for name, metric in metrics.items():
        values = []
        for outputs in (ours, theirs):
            try:
                given = copied_batch(outputs)  # one of its own: it may write into it
                values.append(float(metric(given.get("output", given), copied_batch(batch))))
            except Exception as error:  # a metric is a person's function and may raise anything
                raise ValueError(f"metrics: {name!r} raised {type(error).__name__}: {error}") from error
        first, second = values
        for words, value in (("original", first), ("transformed", second), ("difference", second - first)):
            found[f"{name} ({words})"] = Measured(MEAN, value, float(elements))
    return found


def _with_classes(ours: Outputs, theirs: Outputs) -> list[str]:
    paths = [
        path
        for path, tensor in ours.items()
        if tensor.is_floating_point()
        and 2 <= tensor.dim() <= 5
        and tensor.shape[1 if tensor.dim() > 3 else -1] > 1
        and path in theirs
        and theirs[path].shape == tensor.shape
    ]
    return [path for path in paths if path.endswith("logits")] or paths


def _share(same: torch.Tensor, count: torch.Tensor) -> Measured:
    return Measured(SHARE, float((same & count).sum()), float(count.sum()))


def _mask(batch: Any, shape: torch.Size) -> torch.Tensor | None:
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return mask.bool() if isinstance(mask, torch.Tensor) and mask.shape == shape else None


def check_batch(batch: Any, number: int) -> None:
    """Raise the ``TypeError`` for a value that is not a batch."""
    if not isinstance(batch, Mapping | tuple | list | torch.Tensor):
        raise TypeError(
            f"batches: expected mappings, tuples, lists or tensors, got "
            f"{describe(batch)} as batch {number}. Give each as the model is called with it."
        )


def copied_batch(batch: Any) -> Any:
    """Return a batch with copies of its tensors and arrays."""
    return unflatten_objects(
        map_tensors(lambda _, tensor: tensor.detach().clone(), flatten_objects(batch), other=_own_array)
    )


def _own_array(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def inputs_of_batch(graph_module: GraphModule, batch: Any) -> tuple[Inputs, tuple[str, ...]]:
    """Return the inputs that a graph takes of a batch, and the names or places of the rest."""
    names = [str(node.target).lstrip("*") for node in graph_module.graph.find_nodes(op="placeholder")]
    if isinstance(batch, torch.Tensor):
        return batch, ()
    if isinstance(batch, Mapping):
        taken = {name: value for name, value in batch.items() if name in names}
        return taken, tuple(str(name) for name in batch if name not in taken)
    return tuple(batch[: len(names)]), tuple(map(str, range(len(names), len(batch))))


def elements_of(inputs: Inputs) -> int:
    """Return how many elements a batch has: the first size of its first tensor that has one."""
    tensors = tensor_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    return next((tensor.shape[0] for tensor in tensors if tensor.dim()), 1)


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
