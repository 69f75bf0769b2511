"""Agreement of two models on a batch: counts that can be added up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from fxlab.validation.evaluation.batch_inputs import copied_batch

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
