"""The lock of a session: one thread at a time in its methods; and listeners to its changes."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.session.errors import TransformationError

T = TypeVar("T")
P = ParamSpec("P")


class SessionLock:
    """The lock of a session, and the listeners to its changes.

    ``begin``: called at the beginning of each outermost method, with the lock held.
    """

    def __init__(self, session: object, begin: Callable[[], None]) -> None:
        self._session, self._begin = session, begin
        self._lock = threading.RLock()
        self._is_running = False
        self._listeners: list[Callable[[Any], None]] = []
        self.is_changed = False
        """Whether listeners have to be told when the outermost method is done."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads out during the block, and look for changes of the original at its beginning.

        Listeners are called after the outermost turn, so that they find the lock free.
        """
        with self._lock:
            is_outermost, self._is_running = not self._is_running, True
            try:
                if is_outermost:
                    # Another thread's run may have changed the original; a page cannot wait for long ones.
                    is_free = PROCESS_LOCK.acquire(timeout=1)
                    try:
                        self._begin()
                    finally:
                        if is_free:
                            PROCESS_LOCK.release()
                yield
            finally:
                self._is_running = not is_outermost
            tell = is_outermost and self.is_changed
            if tell:
                self.is_changed = False
        if tell:
            self._tell()

    def take(self, method: Callable[[], T]) -> T:
        """Run a method in a turn."""
        with self.held():
            return method()

    def add_listener(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call a function with the session after each change; returns the function that ends this."""
        if not callable(callback):
            raise TypeError(f"callback: expected a function of the session, got {type(callback).__name__}")
        self._listeners.append(callback)

        def unsubscribe() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return unsubscribe

    def _tell(self) -> None:
        """Tell all listeners; an error in one stops neither the change nor the others."""
        errors: list[Exception] = []
        for listener in tuple(self._listeners):
            try:
                listener(self._session)
            except Exception as error:
                errors.append(error)
        for raised in errors:
            warnings.warn(
                "The session has changed, but a function given to on_change raised "
                f"{type(raised).__name__}: {raised}",
                RuntimeWarning,
                stacklevel=7,
            )


class Lockable(Protocol):
    """An object whose methods take turns."""

    _turns: SessionLock


S = TypeVar("S", bound=Lockable)


def locked(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Run a method in one thread at a time, on stages of the present original."""

    @functools.wraps(method)
    def run(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return self._turns.take(lambda: method(self, *args, **kwargs))
        except TransformationError as error:
            # The session's own frames do not help a reader of the pass's error.
            raise error.with_traceback(None)  # noqa: B904

    return run  # type: ignore[return-value]


def changes_stack(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], S]:
    """Run a method that changes a session under its lock, and return the session for chaining."""
    in_one_turn = locked(method)

    @functools.wraps(method)
    def run(self: S, *args: P.args, **kwargs: P.kwargs) -> S:
        in_one_turn(self, *args, **kwargs)
        return self

    run.__signature__ = inspect.signature(method).replace(return_annotation="Self")  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]
