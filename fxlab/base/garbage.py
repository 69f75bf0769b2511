"""Pause the cyclic garbage collector where many lasting objects are made, as in tracing and drawing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OF_PYTHON = 1_000
"""More objects than Python 3.12 itself puts aside when it starts, and fewer than any process has by then."""

_PUT_ASIDE: list[bool] = []
"""An item for each :func:`only_new_garbage` that has put objects aside: Python counts them one by one."""


def is_frozen() -> bool:
    """Tell whether objects have been put aside by :func:`gc.freeze`, and are expected there."""
    return bool(_PUT_ASIDE) or gc.get_freeze_count() > _OF_PYTHON


@contextmanager
def without_collecting() -> Iterator[None]:
    """Put off Python's search for cyclic garbage until the block ends.

    It would look through all objects again and again: half of the time of a pass on 100,000 nodes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def making_what_stays() -> Iterator[None]:
    """Put off the search as :func:`without_collecting` does, and leave out the objects made then."""
    with without_collecting():
        yield
        if not is_frozen():
            gc.freeze()  # and Python counts the objects as old ones from then on
            gc.unfreeze()


@contextmanager
def only_new_garbage() -> Iterator[None]:
    """Let Python look for cyclic garbage only among the objects that are made until the block ends.

    A process with torch holds about a million objects that stay: a second of a report.
    """
    if is_frozen():  # by somebody who knows why
        yield
        return
    gc.freeze()
    _PUT_ASIDE.append(True)
    try:
        yield
    finally:
        _PUT_ASIDE.pop()
        gc.unfreeze()
