"""One traced model and its switchable stack of transformations, without a screen."""

from fxlab.session.session import Session, TransformationError

__all__ = ["Session", "TransformationError"]
