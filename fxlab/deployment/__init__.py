"""A transformed model put back into use: called, trained and generated with like the model itself."""

from fxlab.deployment.as_model import as_model
from fxlab.deployment.held_graph import Switched

__all__ = ["Switched", "as_model"]
