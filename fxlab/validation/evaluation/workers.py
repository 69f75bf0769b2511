"""Batches judged in turn here, or by an executor; each comes back with what was found of it."""

import os
import pickle
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxlab.models.graph_module import ensure_picklable, share_tensors_copy
from fxlab.validation.evaluation.judge_batch import (
    FAILED,
    BatchResult,
    Work,
    hold,
    judged_batch,
    judged_in_worker,
    let_go,
)

Numbered = tuple[int, Any]


def judged_batches(
    work: Work, batches: Iterable[Numbered], executor: Executor | None
) -> Iterator[tuple[BatchResult, Any]]:
    """Yield what was found of each batch, with the batch, as soon as it is known."""
    if executor is None:
        for number, batch in batches:
            yield judged_batch(work, number, batch), batch
        return
    with _handed_over(work, executor) as (key, source):
        yield from _Pool(executor, key, source).judged(batches)


@contextmanager
def _handed_over(work: Work, executor: Executor) -> Iterator[tuple[str, str | bytes | None]]:
    """Put the work where workers find it: in memory for threads, in a file for processes of this machine."""
    key = uuid.uuid4().hex
    if isinstance(executor, ThreadPoolExecutor):
        hold(key, work)
        try:
            yield key, None
        finally:
            let_go(key)
        return
    pickled = _pickled(work)
    if not isinstance(executor, ProcessPoolExecutor):
        yield key, pickled
        return
    with tempfile.TemporaryDirectory(prefix="fxlab-") as folder:
        path = Path(folder) / "work.pickle"
        path.write_bytes(pickled)
        yield key, str(path)


def _pickled(work: Work) -> bytes:
    original, transformed = share_tensors_copy(work.original), share_tensors_copy(work.transformed)
    for graph_module in (original, transformed):
        ensure_picklable(graph_module)
    for name, metric in work.metrics.items():
        try:
            pickle.dumps(metric)
        except Exception as error:
            raise ValueError(
                f"metrics: {name!r} cannot be sent to another process: {error}. Define it with def at the "
                "top of a module, or use no executor."
            ) from error
    return pickle.dumps(replace(work, original=original, transformed=transformed))


class _Pool:
    """An executor; one whose worker has died is replaced once by one like it, for each batch that it had."""

    def __init__(self, executor: Executor, key: str, source: str | bytes | None) -> None:
        self._given = self._executor = executor
        self._task = key, source
        workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self._window = 2 * workers

    def judged(self, batches: Iterable[Numbered]) -> Iterator[tuple[BatchResult, Any]]:
        """Yield what was found of each batch, with no more of them on the way than keeps workers busy."""
        under_way: dict[Future[BatchResult], Numbered] = {}
        rest, is_over = iter(batches), False
        try:
            while True:
                lost: list[Numbered] = []
                while not is_over and not lost and len(under_way) < self._window:
                    item = next(rest, None)
                    if item is None:
                        is_over = True
                    else:
                        self._give(item, under_way, lost)
                if not under_way and not lost:
                    return
                done = wait(under_way, return_when=FIRST_COMPLETED).done if under_way else set()
                for future in sorted(done, key=lambda one: under_way[one][0]):
                    item = under_way.pop(future)
                    try:
                        result = future.result()
                    except BrokenExecutor:
                        lost.append(item)
                    else:
                        yield result, item[1]
                if lost:
                    # All that were under way in a broken pool are lost; they are tried once more, one by one,
                    # so that only a batch that kills its worker alone is blamed for it.
                    yield from self._once_more([*lost, *self._drained(under_way)])
        finally:
            for future in under_way:
                future.cancel()
            if self._executor is not self._given:
                self._executor.shutdown(wait=False, cancel_futures=True)

    def _give(
        self, item: Numbered, under_way: dict[Future[BatchResult], Numbered], lost: list[Numbered]
    ) -> None:
        try:
            under_way[self._executor.submit(judged_in_worker, *self._task, *item)] = item
        except BrokenExecutor:
            lost.append(item)

    def _drained(self, under_way: dict[Future[BatchResult], Numbered]) -> list[Numbered]:
        items = list(under_way.values())
        for future in under_way:
            future.cancel()
        under_way.clear()
        return items

    def _once_more(self, items: list[Numbered]) -> Iterator[tuple[BatchResult, Any]]:
        self._renew()
        for number, batch in sorted(items, key=lambda item: item[0]):
            try:
                yield self._executor.submit(judged_in_worker, *self._task, number, batch).result(), batch
            except BrokenExecutor as error:
                self._renew()
                reason = f"its worker died twice with it: {error}"
                yield BatchResult(number, FAILED, reason, 0), batch

    def _renew(self) -> None:
        """Make a process pool like the broken one; other executors start workers anew by themselves."""
        old = self._executor
        if not isinstance(old, ProcessPoolExecutor):
            return
        settings: dict[str, Any] = {
            "max_workers": getattr(old, "_max_workers", None),
            "mp_context": getattr(old, "_mp_context", None),
            "initializer": getattr(old, "_initializer", None),
            "initargs": getattr(old, "_initargs", ()),
        }
        if old is not self._given:
            old.shutdown(wait=False, cancel_futures=True)
        self._executor = ProcessPoolExecutor(**settings)
