"""Hold Ctrl-C until changes are put back, wherever torch, a model or its surroundings are changed."""

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _handler() -> Callable[..., Any] | None:
    """Return the handler of interrupts; ``None`` off the main thread, which alone gets them."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return handler if is_main and callable(handler) else None


class InterruptsHeld:
    """Lets an interrupt wait until the end, for work that must not be done by half.

    A nested one leaves it to the outer one, as exchanging handlers takes longer than most such work.
    """

    _is_held: ClassVar[bool] = False

    def __enter__(self) -> None:
        self._came = False
        self._handler = None if InterruptsHeld._is_held else _handler()
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._hold)
            InterruptsHeld._is_held = True

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            InterruptsHeld._is_held = False
            signal.signal(signal.SIGINT, self._handler)
            if self._came:
                self._handler(signal.SIGINT, sys._getframe(1))

    def _hold(self, *_: object) -> None:
        self._came = True


def _interrupt(main: int) -> None:
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:  # which also ends a sleep
        signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Tell whether there was an interrupt, which C code may have turned into another exception.

    One that comes while a context manager, torch's own among them, enters or leaves comes again when that is
    done: it would leave the mode of torch that this changes neither on nor off.
    """
    handler = _handler()
    if handler is None:
        yield lambda: False
        return
    outside, main = sys._getframe(2), threading.get_ident()
    came = False
    again: list[threading.Timer] = []

    def note(number: int, frame: FrameType | None) -> Any:
        nonlocal came
        came = True
        while frame is not None and frame is not outside:
            if frame.f_code.co_name in ("__enter__", "__exit__", "enter_context"):
                again.append(threading.Timer(0.05, _interrupt, (main,)))
                return again[-1].start()
            frame = frame.f_back
        return handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        for timer in again:
            timer.cancel()
        signal.signal(signal.SIGINT, handler)
        for timer in again:
            timer.join()


def interruptible(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return the result of some work; if it was interrupted, raise that, whatever C has made of it."""
    with interrupts_noted() as interrupted:
        try:
            result = work(*args, **kwargs)
        except Exception as error:
            if interrupted():
                raise KeyboardInterrupt from error
            raise
    if interrupted():
        raise KeyboardInterrupt
    return result


@contextmanager
def when_entered(make: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Make a context no sooner than it is entered: some of torch's begin when they are made."""
    with make():
        yield


class RestoringStack(ExitStack[None]):
    """An ``ExitStack`` that enters contexts, and is unwound completely though an interrupt comes."""

    def __init__(self, *contexts: AbstractContextManager[Any, Any]) -> None:
        super().__init__()
        self._contexts = contexts

    def __enter__(self) -> Self:
        try:
            with InterruptsHeld():
                for context in self._contexts:
                    super().enter_context(context)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def enter_context(self, cm: AbstractContextManager[_T, Any]) -> _T:
        """Enter a context, and know from then on that it has to be left."""
        with InterruptsHeld():
            return super().enter_context(cm)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            with InterruptsHeld():
                super().__exit__(kind, error, traceback)
        finally:
            # If one came before it could be held, the remaining exits run now; none runs twice.
            super().__exit__(kind, error, traceback)
