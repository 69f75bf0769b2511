"""Errors of calls after which a model goes on: each is a decision, which the graph has to check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxlab.operators.python_functions import MEMORY
from fxlab.tracing.recording.torch_calls import Call
from fxlab.tracing.report import TraceError
from fxlab.tracing.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)

_OF_TRACING = (
    TraceError,
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)
"""Errors that arise because a model is traced, and not when it runs."""


@dataclass(frozen=True)
class Raises:
    """The target of a node that tells whether a call raises the error that it raised when it was recorded.

    ``op``, ``target``: those of the call's node: ``call_function`` or ``call_method``. ``error``: the class
    of the error.

    Examples
    --------
    >>> import torch
    >>> Raises("call_method", "view", RuntimeError)(torch.ones(3), 2)
    True
    """

    op: str
    target: Any
    error: type[Exception]

    @property
    def __name__(self) -> str:
        return "raises"

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        """Make the call."""
        try:
            if self.op == "call_method":
                getattr(args[0], self.target)(*args[1:], **kwargs)
            else:
                self.target(*args, **kwargs)
        except Exception as error:
            if type(error) is self.error:
                return True
            raise
        return False


class RaisedErrors:
    """Notices the errors of recorded calls, after which a model that catches them goes on.

    ``hold``: makes the graph check that a call raises again. ``on_fakes``: whether the tensors of the run are
    fake ones.
    """

    def __init__(self, hold: Callable[[Call, str, Exception], None], *, on_fakes: bool) -> None:
        self._hold = hold
        self._on_fakes = on_fakes
        self._last: Exception | None = None
        self._call: Call | None = None
        self._of_tracing: Exception | None = None

    def notice(self, call: Call, name: str, error: Exception) -> None:
        """Note the error that a call with a name has raised."""
        if error is self._last:  # it has come from a call inside this one
            return
        self._last, self._call = error, call
        has_no_data = self._on_fakes and (name in MEMORY or isinstance(error, NotImplementedError))
        if has_no_data or isinstance(error, _OF_TRACING):
            self._of_tracing = self._of_tracing or error
            return
        try:
            self._hold(call, name, error)
        except TraceError as unheld:
            # Python tries operators on objects that torch does not know: a TypeError means "not supported".
            if not isinstance(error, TypeError):
                self._of_tracing = self._of_tracing or unheld

    def call_of(self, error: Exception) -> Call | None:
        """Return the call that has raised an error, unless the error comes from elsewhere."""
        return self._call if error is self._last else None

    def end(self) -> None:
        """Release the errors, whose tracebacks hold the arguments of calls."""
        self._last = self._call = self._of_tracing = None

    def require_none(self, unanswered: Exception | None) -> None:
        """Raise the first error that is raised only because the model is traced, if the model went on.

        ``unanswered``: the error of a question about sizes, if one has failed.
        """
        if error := self._of_tracing or unanswered:
            raise error
