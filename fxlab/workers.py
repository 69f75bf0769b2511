"""Work on many items, in turn here or by an executor, of which each worker holds what all items need."""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from fxlab.checks import described

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

MOST_UNDER_WAY = 64
"""Items that are under way in an executor that does not say how many workers it has. It begins with one, and
has one more for each result: what is shared is to be with a worker before many items are."""


def checked_executor(executor: Any) -> None:
    """Raise the ``TypeError`` that says that something is no executor."""
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            f"executor: expected a concurrent.futures.Executor, got {described(executor)}. "
            "Give one, such as ProcessPoolExecutor(4)."
        )


def check_picklable(values: Mapping[str, Any], argument: str) -> None:
    """Raise the ``ValueError`` that names what cannot be sent to another process."""
    for name, value in values.items():
        try:
            pickle.dumps(value)
        except Exception as error:
            raise ValueError(
                f"{argument}: {name!r} cannot be sent to another process: {error}. Give a function that is "
                "defined with def at the top of a module, or use no executor."
            ) from error


def worked_on(
    function: Callable[[S, T], R],
    shared: S,
    items: Iterable[T],
    executor: Executor | None,
    *,
    died: Callable[[T, str], R],
    pickled: Callable[[S], bytes] = pickle.dumps,
) -> Iterator[tuple[R, T]]:
    """Yield what a function gives for each item, with the item, as soon as it is known.

    An item whose worker dies is given once more. No more items are taken than keep the workers busy. In one
    process, calls take turns.

    Parameters
    ----------
    function
        Called with ``shared`` and an item. Of a module, so that it can be pickled; so can items and results.
    shared
        What all calls need. A worker reads it once: from memory in threads, from a file in processes of this
        machine; any other worker asks for it when it has not got it.
    items
        Any iterable.
    executor
        Where they are worked on; ``None`` for here.
    died
        Makes the result of an item whose workers died twice, from the item and the reason.
    pickled
        Pickles ``shared``.

    Raises
    ------
    Exception
        Whatever the function raises.
    """
    if executor is None:
        for item in items:
            yield function(shared, item), item
        return
    with _handed_over(shared, executor, pickled) as task:
        yield from _Pool(executor, _Call(function, task), died).results(items)


@dataclass(frozen=True)
class _Task:
    """The place where a worker finds shared data."""

    key: str
    path: str | None = None
    pickled: bytes | None = None


@contextmanager
def _handed_over(shared: S, executor: Executor, pickled: Callable[[S], bytes]) -> Iterator[tuple[_Task, ...]]:
    """Yield the tasks that an item is given with: the first, and that for a worker which asks for more."""
    key = uuid.uuid4().hex
    if isinstance(executor, ThreadPoolExecutor):
        _held[key] = shared
        try:
            yield (_Task(key),)
        finally:
            _held.pop(key, None)
        return
    data = pickled(shared)
    if not isinstance(executor, ProcessPoolExecutor):
        yield _Task(key), _Task(key, pickled=data)
        return
    with tempfile.TemporaryDirectory(prefix="fxlab-") as folder:
        path = Path(folder) / "shared.pickle"
        path.write_bytes(data)
        yield (_Task(key, str(path)),)


_held: dict[str, Any] = {}
"""What is shared, by its key: in a worker, that of the work it is at."""
_lock = threading.Lock()
"""Random generators, and the state of a module that a run puts back, are one for all threads."""


class _Answer(Enum):
    UNKNOWN = "what is shared is not here"


@dataclass(frozen=True)
class _Raised:
    """An exception of the function: not of the executor, which raises when a worker is lost."""

    error: BaseException


def _in_worker(function: Callable[[Any, Any], Any], task: _Task, item: Any, attempt: int) -> Any:
    try:
        with _lock:
            if task.key not in _held:
                if task.path is None and task.pickled is None:
                    return _Answer.UNKNOWN
                _held.clear()
                _held[task.key] = pickle.loads(task.pickled or Path(task.path or "").read_bytes())
            return function(_held[task.key], item)
    except Exception as error:
        return _Raised(error)


@dataclass(frozen=True)
class _Call(Generic[T, R]):
    """The call that is submitted for an item."""

    function: Callable[[Any, T], R]
    tasks: tuple[_Task, ...]

    def submit(self, executor: Executor, item: T, attempt: int) -> Future[Any]:
        # Dask takes calls with equal arguments for one, so the attempt is among them.
        task = self.tasks[min(attempt, len(self.tasks) - 1)]
        return executor.submit(_in_worker, self.function, task, item, attempt)


_UnderWay: TypeAlias = dict[Future[Any], tuple[int, T]]


class _Pool(Generic[T, R]):
    """An executor, and items under way in it; a process pool that is broken is replaced by one like it."""

    def __init__(self, executor: Executor, call: _Call[T, R], died: Callable[[T, str], R]) -> None:
        self._given = self._executor = executor
        self._call, self._died = call, died
        workers = getattr(executor, "_max_workers", None)
        self._most = 2 * workers if workers else max(MOST_UNDER_WAY, 2 * (os.cpu_count() or 1))
        self._window = 1 if len(call.tasks) > 1 else self._most
        self._under_way: _UnderWay[T] = {}
        self._tried: set[int] = set()
        """The places of items whose worker died once."""

    def results(self, items: Iterable[T]) -> Iterator[tuple[R, T]]:
        """Yield what there is of each item."""
        rest, is_over = enumerate(items), False
        try:
            while True:
                lost: list[tuple[int, T]] = []
                while not is_over and not lost and len(self._under_way) < self._window:
                    entry = next(rest, None)
                    if entry is None:
                        is_over = True
                    else:
                        self._give(entry, lost)
                if not self._under_way and not lost:
                    return
                yield from self._done(lost)
                if lost:
                    # All that were under way in a broken pool are lost; they are tried once more, one by one,
                    # so that only an item that kills its worker alone is blamed for it.
                    lost += self._under_way.values()
                    self._under_way.clear()
                    yield from self._once_more(sorted(lost, key=lambda entry: entry[0]))
        finally:
            for future in self._under_way:
                future.cancel()
            if self._executor is not self._given:
                self._executor.shutdown(wait=False, cancel_futures=True)

    def _give(self, entry: tuple[int, T], lost: list[tuple[int, T]], attempt: int = 0) -> None:
        try:
            future = self._call.submit(self._executor, entry[1], attempt)
        except BrokenExecutor:
            lost.append(entry)
        else:
            self._under_way[future] = entry

    def _done(self, lost: list[tuple[int, T]]) -> Iterator[tuple[R, T]]:
        """Wait, and yield what is done; what a broken pool has lost is added to ``lost``."""
        done = wait(self._under_way, return_when=FIRST_COMPLETED).done if self._under_way else set()
        for future in sorted(done, key=lambda one: self._under_way[one][0]):
            entry = self._under_way.pop(future)
            place, item = entry
            try:
                result = future.result()
            except BrokenExecutor:
                lost.append(entry)
            except Exception as error:  # each engine has its own for a worker that is lost
                if place in self._tried:
                    yield self._died(item, _died_twice(error)), item
                else:
                    self._tried.add(place)
                    self._give(entry, lost, attempt=2)
            else:
                if result is _Answer.UNKNOWN:
                    self._give(entry, lost, attempt=1)
                else:
                    self._window = min(self._window + 1, self._most)
                    yield _result(result), item

    def _once_more(self, entries: list[tuple[int, T]]) -> Iterator[tuple[R, T]]:
        self._renew()
        for _, item in entries:
            try:
                result = _result(self._call.submit(self._executor, item, attempt=2).result())
            except BrokenExecutor as error:
                self._renew()
                result = self._died(item, _died_twice(error))
            yield result, item

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
            "max_tasks_per_child": getattr(old, "_max_tasks_per_child", None),
        }
        if old is not self._given:
            old.shutdown(wait=False, cancel_futures=True)
        self._executor = ProcessPoolExecutor(**settings)


def _result(answer: Any) -> Any:
    if isinstance(answer, _Raised):
        raise answer.error
    return answer


def _died_twice(error: BaseException) -> str:
    return f"its worker died twice with it: {str(error) or type(error).__name__}"
