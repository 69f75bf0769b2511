"""The kernel's main thread, in which a page's messages are answered: the only one that an interrupt reaches.

A kernel may receive messages in other threads, as it does where Jupyter has subshells.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def run_in_main_thread(action: Callable[[], object], then: Callable[[], object]) -> None:
    """Run something where an interrupt stops it, and where cells run, one after the other.

    Where page and kernel both know subshells (JupyterLab 4.4 and ipykernel 7, or later), messages from a page
    may be handled in a thread of their own, beside the cell that runs. There nothing could be cancelled, and
    a cell and the page could change one session at the same time. ``action``: the work. In another thread
    this returns at once, and the main thread does the work when it is free. ``then``: is called afterwards in
    any case, and is not interrupted.
    """
    if threading.current_thread() is threading.main_thread():
        _interruptible(action, then)
    elif (loop := _loop_of_main_thread()) is not None:
        loop.add_callback(_interruptible, action, then)
    else:
        try:
            action()
        finally:
            then()


def is_beside_cells() -> bool:
    """Tell whether this is a thread in which a kernel answers pages while a cell may run."""
    return threading.current_thread().name.startswith("subshell-")


def _interruptible(action: Callable[[], object], then: Callable[[], object]) -> None:
    """Run something until it ends or an interrupt ends it, in the main thread.

    An idle kernel ignores interrupts, and one that leaves its event loop is the kernel's end.
    """
    before = signal.getsignal(signal.SIGINT)
    working = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if working:
            raise KeyboardInterrupt

    try:
        try:
            signal.signal(signal.SIGINT, interrupt)
            action()
        finally:
            working = False
    except KeyboardInterrupt:
        working = False
    finally:
        try:
            then()
        finally:
            signal.signal(signal.SIGINT, before)


def _loop_of_main_thread() -> Any:
    """Return the event loop of this kernel, or ``None`` if this process is not a kernel."""
    from IPython import get_ipython

    return getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)
