"""An order in which every item follows its inputs, for graphs put together from parts."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def after_inputs(items: Iterable[T], inputs: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield items as they stand, but none before one that it reads; ValueError if they read in a circle."""
    done: set[T] = set()
    waiting: dict[T, list[T]] = {}
    pending = list(items)[::-1]
    while pending:
        item = pending.pop()
        missing = next((value for value in inputs(item) if value not in done), None)
        if missing is not None:
            waiting.setdefault(missing, []).append(item)
            continue
        done.add(item)
        yield item
        pending += reversed(waiting.pop(item, []))
    if waiting:
        raise ValueError(f"The graph has a cycle through {next(iter(waiting))}.")
