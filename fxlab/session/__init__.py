"""One traced model and its switchable stack of transformations, without a screen."""

from fxlab.session.errors import TransformationError
from fxlab.session.load_session import load_session
from fxlab.session.session import Session
from fxlab.session.tuning.result import Trial, Tuning
from fxlab.session.tuning.tune import tune

__all__ = ["Session", "TransformationError", "Trial", "Tuning", "load_session", "tune"]
