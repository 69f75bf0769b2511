"""Ctrl-C that waits until what was changed is put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, TypeVar

_T = TypeVar("_T")


def _handler() -> Callable[..., Any] | None:
    """Return what handles an interrupt; ``None`` off the main thread, which alone gets them."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and callable(handler) else None


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let an interrupt wait until the end, for what must not be done by half."""
    handler = _handler()
    if handler is None:
        yield
        return
    held: list[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: held.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[-1])


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Tell whether there was an interrupt, which code in C may have made another exception of.

    Yields
    ------
    callable
        Returns whether there was one.
    """
    handler = _handler()
    if handler is None:
        yield lambda: False
        return
    came = False

    def note(*arguments: Any) -> Any:
        nonlocal came
        came = True
        return handler(*arguments)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, handler)


class RestoringStack(ExitStack):
    """An ``ExitStack`` that is unwound completely even if an interrupt comes meanwhile."""

    def enter_context(self, cm: AbstractContextManager[_T, Any]) -> _T:
        """Enter a context, and know from then on that it has to be left."""
        with interrupts_held():
            return super().enter_context(cm)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        with interrupts_held():
            return bool(super().__exit__(kind, error, traceback))
