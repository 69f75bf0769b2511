"""A transformed model put back into use: called, trained and generated with like the model itself."""

from fxlab.deployment.as_model import Switched, as_model

__all__ = ["Switched", "as_model"]
