"""``fxlab.evaluate``: judge the stack of a session, or another model, on a whole data set."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule
from tqdm import tqdm

from fxlab.base.checks import describe, type_error
from fxlab.front_desk.sources import Model, source_of
from fxlab.models.running.arguments import batches_of, model_inputs_in_batch
from fxlab.models.running.running import generators_kept
from fxlab.validation.arguments import check_runs, graph_to_run
from fxlab.validation.evaluation import judge_batch
from fxlab.validation.evaluation.evaluation import Evaluation, WorstBatch, badness, verdict_over

KEPT = 5
"""How many of the worst batches are kept as they are."""


def evaluate(
    reference: Model,
    candidate: Model,
    batches: Iterable[Any],
    metrics: Mapping[str, judge_batch.Metric] | None = None,
) -> Evaluation:
    """Judge a model against another on many batches; ``session.evaluate`` does so with its own two.

    Each batch is judged as :func:`verdict` judges one input, with the original's rounding measured on it; the
    worst decides. The share of equal decisions is counted as well. Batches come and go one by one: a row of
    numbers is kept of each, and the worst few as they are. Ctrl-C ends it with those done.

    Parameters
    ----------
    reference, candidate
        Two models.
    batches
        Any iterable: a ``DataLoader``, a list, a generator; or a map-style data set, whose samples become
        batches of one, as by ``DataLoader(data)``. Of a mapping the model receives the
        items that its graph has inputs for, of a tuple or list as many as it has inputs; the rest, such as
        labels, is for metrics. Batches may be of other sizes than the session's inputs.
    metrics
        Functions by name, each called with the outputs of a model (a tensor if it returns one alone,
        or else a mapping of tensors by path) and the batch; it returns a number, such as an accuracy.

    Returns
    -------
    Evaluation
        With ``verdict``, ``agrees``, ``table``, ``batches`` and ``worst``.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If the model has no weights.

    Notes
    -----
    Decisions are the largest class and the set of the five largest, of the outputs whose path ends in
    ``logits``, or of all floating outputs of two to five dimensions where there are none.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import Session
    >>> _ = torch.manual_seed(0)
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 3)
    >>> model = nn.Sequential(*layers).eval()
    >>> session = Session(torch.fx.symbolic_trace(model), torch.randn(1, 3, 8, 8))
    >>> _ = session.apply("fuse-batch-norm2d-in-conv2d")
    >>> evaluation = session.evaluate([torch.randn(size, 3, 8, 8) for size in (4, 4, 2)])
    >>> print(evaluation.verdict.status)
    within the model's own rounding
    >>> evaluation.table.loc["top-1 of output", ["value", "n"]].tolist()
    [1.0, 10.0]
    """
    batches = batches_of(batches)
    total = _number_of(batches)
    original, transformed, batches = _models(reference, candidate, batches)
    check_runs(original, "reference")
    check_runs(transformed, "candidate")
    own = checked_metrics(metrics)
    gathered, stopped, work = _Gathered(), False, judge_batch.Work(original, transformed, own)
    with tqdm(total=total, disable=None, leave=False, unit="batch") as bar, generators_kept():
        try:
            for number, batch in enumerate(batches):
                judge_batch.check_batch(batch, number)
                gathered.add(judge_batch.judged_batch(work, number, batch), batch)
                bar.update()
        except KeyboardInterrupt:
            stopped = True
    rows = tuple(gathered.rows)
    worst = [_worst_batch(original, result, batch) for result, batch in gathered.worst]
    verdict = verdict_over(gathered.worst[0][0] if gathered.worst else None, rows)
    return Evaluation(verdict, tuple(worst), rows, total, stopped)


def _models(reference: Any, candidate: Any, batches: Any) -> tuple[GraphModule, GraphModule, Iterable[Any]]:
    """Return the models to run, and the batches: the first one gives the inputs to trace a module on."""
    first, second = source_of(reference, "reference"), source_of(candidate, "candidate")
    _check_batches(batches)
    rest = iter(batches)
    if (batch := next(rest, None)) is None:
        if isinstance(first.module, GraphModule) and isinstance(second.module, GraphModule):
            return first.module, second.module, ()
        raise ValueError("batches: there are none, and the first one gives the inputs to trace a model on.")
    judge_batch.check_batch(batch, 0)
    given = model_inputs_in_batch(batch, first.module)
    graphs = (graph_to_run(first.module, "reference", given), graph_to_run(second.module, "candidate", given))
    return *graphs, itertools.chain([batch], rest)


class _Gathered:
    """Results gathered while batches come: a short one of each, and the worst few with their batches."""

    def __init__(self) -> None:
        self.rows: list[judge_batch.BatchResult] = []
        self.worst: list[tuple[judge_batch.BatchResult, Any]] = []

    def add(self, result: judge_batch.BatchResult, batch: Any) -> None:
        """Keep a short result, and all of it with the batch if it is among the worst so far."""
        short = None if result.verdict is None else replace(result.verdict, outputs={}, by_inputs={})
        self.rows.append(replace(result, verdict=short))
        if result.status in (judge_batch.REFUSED, judge_batch.FAILED):
            return
        worst = sorted([*self.worst, (result, batch)], key=lambda item: badness(item[0]), reverse=True)
        # A loader may fill the same tensors anew.
        self.worst = [
            (kept, judge_batch.copied_batch(given) if kept is result else given)
            for kept, given in worst[:KEPT]
        ]


def _worst_batch(original: GraphModule, result: judge_batch.BatchResult, batch: Any) -> WorstBatch:
    inputs, _ = judge_batch.inputs_of_batch(original, batch)
    assert result.verdict is not None
    found = result.verdict, result.max_abs_diff, result.worst_output, result.worst_index
    return WorstBatch(result.number, inputs, batch, *found)


def _number_of(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:  # a generator, or a loader of a dataset that does not know its length
        return None


def _check_batches(batches: Any) -> None:
    if isinstance(batches, str | bytes | Mapping | torch.Tensor | type) or not isinstance(batches, Iterable):
        raise TypeError(
            f"batches: expected an iterable of batches, such as a DataLoader or a list, got "
            f"{describe(batches)}. One batch is given as [batch]."
        )


def checked_metrics(metrics: Any) -> dict[str, judge_batch.Metric]:
    """Return metrics by name, or raise the ``TypeError`` that names the value that is no metric."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise type_error(
            "metrics", "a mapping of functions by name", metrics, 'Write metrics={"accuracy": function}.'
        )
    for name, metric in metrics.items():
        if not isinstance(name, str) or not callable(metric):
            raise TypeError(
                f"metrics: expected functions by name, but {describe(name)} stands for {describe(metric)}."
            )
    return dict(metrics)
