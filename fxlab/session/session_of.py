"""The session behind a ``model`` argument: the one that was given, or a new one."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from fxlab.checks import described
from fxlab.session.session import Session
from fxlab.transformations import Transformation
from fxlab.validation.arguments import no_model


def session_of(
    model: nn.Module | Session, inputs: Any = None, passes: Iterable[Transformation] | None = None
) -> Session:
    """Return a session that was given, or make one of a model.

    Raises
    ------
    TypeError
        If ``model`` is neither, or ``inputs`` or ``passes`` are given with a session, which has its own.
    """
    if isinstance(model, Session):
        for name, value in (("inputs", inputs), ("passes", passes)):
            if value is not None:
                raise TypeError(
                    f"{name}: a session has its own, got {described(value)} beside one. "
                    "Make another session: fxlab.Session(model, inputs, passes=...)."
                )
        return model
    if not isinstance(model, nn.Module):
        raise no_model(model, "model")
    return Session(model, inputs, passes=passes)
