"""One traced model and its switchable stack of transformations, without a screen."""

from fxlab.session.errors import TransformationError
from fxlab.session.load_session import load_session
from fxlab.session.session import Session

__all__ = ["Session", "TransformationError", "load_session"]
