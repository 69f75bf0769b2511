"""Judge the stack of a session, or another model, on a whole data set."""

import itertools
import os
import pickle
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule
from tqdm import tqdm

from fxlab.base.checks import describe, path_text, positive_int, type_error
from fxlab.front_desk.sources import Model, source_of
from fxlab.models.running.running import batches_of, generators_kept, model_inputs_in_batch
from fxlab.validation.arguments import check_runs, graph_to_run
from fxlab.validation.evaluation.agreement import Metric, predicts_next_token
from fxlab.validation.evaluation.batch_inputs import batch_print, check_batch, copied_batch, inputs_of_batch
from fxlab.validation.evaluation.evaluation import Evaluation, WorstBatch, badness, verdict_over
from fxlab.validation.evaluation.judge_batch import (
    FAILED,
    REFUSED,
    BatchResult,
    Work,
    judged_batch,
    lost_batch,
    pickled_work,
)
from fxlab.validation.evaluation.kept_file import KeptFile


def evaluate(
    reference: Model,
    candidate: Model,
    batches: Iterable[Any],
    metrics: Mapping[str, Metric] | None = None,
    *,
    executor: Executor | None = None,
    keep: int = 5,
    resume: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Judge a model against another on many batches; ``session.evaluate`` does so with its own two.

    Each batch is judged as :func:`verdict` judges one input, with the original's rounding measured on it; the
    worst decides. The share of equal decisions is counted as well. Batches come and go one by one: a row of
    numbers is kept of each, and the worst few as they are. An interrupt (Ctrl-C) ends it with the batches
    done.

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
    executor
        Where batches are judged: any executor of ``concurrent.futures``, of loky or of Dask. In a thread pool
        batches take turns, as all threads share the random generators. A batch that the executor loses is
        ``failed``; an executor that takes no more calls ends the evaluation with the batches done. Metrics
        for other processes must be picklable.
    keep
        How many of the worst batches are kept.
    resume
        A file with a line for each batch that was judged. If it is there, these are not judged again. It is
        checked: one of another model, stack or data is refused.

    Returns
    -------
    Evaluation
        With ``verdict``, ``agrees``, ``table``, ``batches`` and ``worst``.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If the model has no weights, a metric cannot be sent to another process, or ``resume`` is of another
        evaluation.
    OSError
        If ``resume`` cannot be read or written.

    Notes
    -----
    Decisions are the largest class and the set of the five largest, of the outputs whose path ends in
    ``logits``, or of all floating outputs of two to five dimensions where there are none. For a graph that
    gives logits for ``input_ids`` which no later token changes (it is tried on the first batch), the next
    token and the perplexities are measured, with the batch's ``labels`` or the tokens themselves.

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
    checked_executor(executor)
    positive_int(keep, "keep")
    kept_file = None
    if resume is not None:
        path_text(resume, "resume")
        kept_file = KeptFile(Path(resume), original, transformed, own)
    rest, gathered, prints = iter(batches), _Gathered(keep), dict[int, str]()
    stopped = is_over = False
    with tqdm(total=total, disable=None, leave=False, unit="batch") as bar, generators_kept():

        def to_judge(given: Iterable[Any]) -> Iterator[Item]:
            """Yield the numbered batches that the file does not know."""
            nonlocal is_over
            for number, batch in enumerate(given):
                check_batch(batch, number)
                if executor is not None:  # it may be at it when the loader fills the same tensors anew
                    batch = copied_batch(batch)
                if kept_file is not None:
                    text = batch_print(batch)
                    if known := kept_file.result(number, text):
                        gathered.add(known, batch)
                        bar.update()
                        continue
                    prints[number] = text
                yield number, batch
            is_over = True

        try:
            first = [*itertools.islice(rest, 1)]
            predicts = bool(first) and _predicts_next_token(original, first[0])
            work = Work(original, transformed, own, predicts)
            for result, (number, batch) in judged(work, to_judge(itertools.chain(first, rest)), executor):
                if isinstance(result, Exception):
                    # It is no line of the file, so that the next run judges it.
                    result = lost_batch(number, result)
                elif kept_file is not None:
                    kept_file.add(result, prints.pop(number))
                gathered.add(result, batch)
                bar.update()
        except KeyboardInterrupt:
            stopped = True
    rows = tuple(gathered.rows[number] for number in sorted(gathered.rows))
    worst = [_worst_batch(original, result, batch) for result, batch in gathered.worst]
    verdict = verdict_over(gathered.worst[0][0] if gathered.worst else None, rows)
    return Evaluation(verdict, tuple(worst), rows, total, stopped or not is_over)


def _models(reference: Any, candidate: Any, batches: Any) -> tuple[GraphModule, GraphModule, Iterable[Any]]:
    """Return the models to run, and the batches: the first one gives the inputs to trace a module on."""
    first, second = source_of(reference, "reference"), source_of(candidate, "candidate")
    _check_batches(batches)
    rest = iter(batches)
    if (batch := next(rest, None)) is None:
        if isinstance(first.module, GraphModule) and isinstance(second.module, GraphModule):
            return first.module, second.module, ()
        raise ValueError("batches: there are none, and the first one gives the inputs to trace a model on.")
    check_batch(batch, 0)
    given = model_inputs_in_batch(batch, first.module)
    graphs = (
        graph_to_run(first.module, "reference", given),
        graph_to_run(second.module, "candidate", given),
    )
    return *graphs, itertools.chain([batch], rest)


class _Gathered:
    """Results gathered while batches come: a short one of each, and the worst few with their batches."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.rows: dict[int, BatchResult] = {}
        self.worst: list[tuple[BatchResult, Any]] = []

    def add(self, result: BatchResult, batch: Any) -> None:
        """Keep a short result, and all of it with the batch if it is among the worst so far."""
        short = None if result.verdict is None else replace(result.verdict, outputs={}, by_inputs={})
        self.rows[result.number] = replace(result, verdict=short)
        if result.status in (REFUSED, FAILED):
            return
        worst = sorted([*self.worst, (result, batch)], key=lambda item: badness(item[0]), reverse=True)
        # A loader may fill the same tensors anew.
        self.worst = [
            (kept, copied_batch(given) if kept is result else given) for kept, given in worst[: self._keep]
        ]


def _worst_batch(original: GraphModule, result: BatchResult, batch: Any) -> WorstBatch:
    inputs, _ = inputs_of_batch(original, batch)
    assert result.verdict is not None
    found = result.verdict, result.max_abs_diff, result.worst_output, result.worst_index
    return WorstBatch(result.number, inputs, batch, *found)


def _predicts_next_token(original: GraphModule, batch: Any) -> bool:
    try:
        return predicts_next_token(original, inputs_of_batch(original, batch)[0])
    except Exception:  # the graph may raise anything; the verdict on the batch itself will say so
        return False


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


def checked_metrics(metrics: Any) -> dict[str, Metric]:
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


MOST_UNDER_WAY = 64
"""The limit of batches that are under way at once, so that a data set is not read into memory."""

Item: TypeAlias = tuple[int, Any]
"""A batch with its number."""

_held: dict[str, Work] = {}
"""The work by its key: in a worker, that of the evaluation it takes part in."""
_lock = threading.Lock()
"""Threads take turns: they share random generators, and the state of a module that a run puts back."""


def checked_executor(executor: Any) -> None:
    """Raise a ``TypeError`` for an object that takes no calls."""
    if executor is None or (not isinstance(executor, type) and callable(getattr(executor, "submit", None))):
        return
    raise type_error(
        "executor", "a concurrent.futures.Executor", executor, "Give one, such as ProcessPoolExecutor(4)."
    )


def judged(
    work: Work, items: Iterable[Item], executor: Executor | None
) -> Iterator[tuple[BatchResult | Exception, Item]]:
    """Yield the result of each batch as soon as it is known, or the error of an executor that lost the batch.

    A batch is sent with the key of the work. A worker without that work asks for it, and the batch is sent
    once more with the pickled models. The number under way begins with one and grows with each result, so
    that the models are with a worker before many batches are. No batch is taken after the executor has
    refused one. Raises ValueError if a metric cannot be pickled.
    """
    if executor is None:
        for number, batch in items:
            yield judged_batch(work, number, batch), (number, batch)
        return
    key = uuid.uuid4().hex
    _held[key] = work
    under_way: dict[Future[Any], Item] = {}
    pickled, window, rest = b"", 1, iter(items)

    def send(item: Item, pickled: bytes = b"") -> Exception | None:
        try:
            under_way[executor.submit(_judged_in_worker, key, pickled, item)] = item
        except Exception as error:  # each engine has its own for workers that are lost
            return error
        return None

    try:
        while True:
            while len(under_way) < window and (item := next(rest, None)) is not None:
                if (refused := send(item)) is not None:
                    rest = iter(())
                    yield refused, item
            if not under_way:
                return
            done = wait(under_way, return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda one: under_way[one][0]):
                item = under_way.pop(future)
                try:
                    result: BatchResult | Exception | None = future.result()
                except Exception as error:
                    result = error
                if result is None:
                    pickled = pickled or pickled_work(work)
                    result = send(item, pickled)
                if result is not None:
                    window = min(window + 1, MOST_UNDER_WAY)
                    yield result, item
    finally:
        for future in under_way:
            future.cancel()
        _held.pop(key, None)


def _judged_in_worker(key: str, pickled: bytes, item: Item) -> BatchResult | None:
    """Judge a batch; return ``None`` if this worker has not got the work."""
    with _lock:
        if key not in _held:
            if not pickled:
                return None
            _held.clear()
            _held[key] = pickle.loads(pickled)
        return judged_batch(_held[key], *item)
