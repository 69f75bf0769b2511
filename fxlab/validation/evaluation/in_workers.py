"""Batches judged here, or by the workers of an executor, each of which is sent the models once."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, TypeAlias

from fxlab.checks import described
from fxlab.validation.evaluation.judge_batch import BatchResult, Work, judged_batch, pickled_work

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
    raise TypeError(
        f"executor: expected a concurrent.futures.Executor, got {described(executor)}. "
        "Give one, such as ProcessPoolExecutor(4)."
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
