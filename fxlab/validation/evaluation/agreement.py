"""Agreement of two models on a batch: counts that can be added up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule

from fxlab.models.running.running import Inputs, run
from fxlab.validation.evaluation.batch_inputs import copied_batch
from fxlab.values.tensors import tensors_by_path, to_float64

Outputs: TypeAlias = dict[str, torch.Tensor]
"""Outputs by path."""

Metric: TypeAlias = Callable[[Any, Any], Any]
"""Takes the outputs of a model (a tensor, or a mapping of several by path) and the batch; gives a number."""

TOP = 5
NO_LABEL = -100
"""The label of elements that do not count, as ``torch.nn.functional.cross_entropy`` has it."""

SHARE, LOSS, MEAN = "share", "loss", "mean"


@dataclass(frozen=True)
class Measured:
    """One measure on one batch."""

    kind: str
    """``share``, ``loss`` (a sum of negative log likelihoods) or ``mean``."""
    total: float
    """How many agree; the sum; or the value itself."""
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


def predicts_next_token(model: GraphModule, inputs: Inputs) -> bool:
    """Tell whether a model gives logits of a vocabulary for each token that no later token changes.

    That is tried: the last token of each row is replaced, and the logits before it have to keep every bit.
    """
    tokens = _tokens(inputs)
    if tokens is None or tokens.shape[1] < 2 or not isinstance(inputs, Mapping):
        return False
    before = _logits(tensors_by_path(run(model, inputs)), tokens)
    if before is None:
        return False
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % before.shape[-1]
    after = _logits(tensors_by_path(run(model, {**inputs, "input_ids": other})), other)
    return after is not None and torch.equal(before[:, :-1], after[:, :-1])


def next_tokens(ours: Outputs, theirs: Outputs, batch: Any) -> dict[str, Measured]:
    """Measure how well both predict the next token, and how often they predict the same one.

    Tokens are the ``labels`` of the batch where it has some of that shape, or else its ``input_ids``.
    """
    tokens = _tokens(batch)
    if tokens is None:
        return {}
    a, b = _logits(ours, tokens), _logits(theirs, tokens)
    if a is None or b is None:
        return {}
    labels = batch.get("labels")
    is_given = isinstance(labels, torch.Tensor) and labels.shape == tokens.shape
    wanted = (labels if is_given else tokens)[:, 1:].to(a.device).long()
    count = wanted != NO_LABEL
    mask = _mask(batch, tokens.shape)
    count = count if mask is None else count & mask[:, 1:] & mask[:, :-1]
    same = a[:, :-1].argmax(-1) == b[:, :-1].argmax(-1)
    found = {"next token": _share(same, count)}
    for name, logits in (("original", a), ("transformed", b)):
        likelihoods = to_float64(logits[:, :-1]).log_softmax(-1)
        places = wanted.clamp(min=0)[..., None].to(likelihoods.device)
        loss = -likelihoods.gather(-1, places)[..., 0][count.to(likelihoods.device)]
        found[f"perplexity ({name})"] = Measured(LOSS, float(loss.sum()), float(count.sum()))
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


def _tokens(batch: Any) -> torch.Tensor | None:
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    is_text = isinstance(tokens, torch.Tensor) and tokens.dim() == 2 and not tokens.is_floating_point()
    return tokens if is_text else None


def _logits(outputs: Outputs, tokens: torch.Tensor) -> torch.Tensor | None:
    """Return the only output that has a number for each token of a vocabulary."""
    found = [
        x
        for path, x in outputs.items()
        if x.is_floating_point()
        and x.dim() == 3
        and x.shape[:2] == tokens.shape
        and int(tokens.max()) < x.shape[-1]
        and (path.endswith("logits") or len(outputs) == 1)
    ]
    return found[0] if len(found) == 1 else None
