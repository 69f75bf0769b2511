"""A transformed model in use: called, trained and used for generation like the model itself."""

from fxlab.deployment.as_model import as_model
from fxlab.deployment.held_graph import Switched

__all__ = ["Switched", "as_model"]
