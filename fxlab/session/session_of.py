"""The session behind a ``model`` argument: the one that was given, or a new one."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from fxlab.checks import described
from fxlab.session.session import Session
from fxlab.transformations import Transformation


def session_of(
    model: Any,
    inputs: Any = None,
    passes: Iterable[Transformation] | None = None,
) -> Session:
    """Return a session that was given, or make one of a model; of two models, one of their comparison.

    Raises
    ------
    TypeError
        If ``model`` is neither, or ``inputs`` or ``passes`` are given with a session, which has its own.
    """
    if isinstance(model, tuple) and len(model) == 2:
        model = import_module("fxlab").compare(*model, inputs)  # a room above, found when it is asked for
        inputs = None
    if isinstance(found := getattr(model, "session", None), Session):  # of a comparison, or an inspector
        model = found
    if isinstance(model, Session):
        for name, value in (("inputs", inputs), ("passes", passes)):
            if value is not None:
                raise TypeError(
                    f"{name}: a session has its own, got {described(value)} beside one. "
                    "Make another session: fxlab.Session(model, inputs, passes=...)."
                )
        return model
    return Session(model, inputs, passes=passes)
