"""The session of an argument: the given one, or a new one of a model."""

from __future__ import annotations

from fxlab.base.checks import describe
from fxlab.front_desk.sources import Model, no_session
from fxlab.models.running.running import Inputs
from fxlab.session.session import Session


def session_of(model: Model | Session, inputs: Inputs | None = None) -> Session:
    """Return a given session, or make one of a model.

    Raises TypeError if ``model`` is neither, or ``inputs`` are given with a session, which has its own.
    """
    if not isinstance(model, Session):
        return Session(model, inputs)
    if inputs is not None:
        raise TypeError(
            f"inputs: a session has its own, got {describe(inputs)} beside one. "
            "Make another session: fxlab.Session(model, inputs)."
        )
    return model


def checked_session(value: object) -> Session:
    """Return a session, or raise the ``TypeError`` that asks for one."""
    if not isinstance(value, Session):
        raise no_session(value)
    return value
