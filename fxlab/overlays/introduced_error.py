"""How far a node by itself moves its value."""

from fxlab.overlays.overlay import Source

INTRODUCED_ERROR = Source(
    "introduced-error",
    "Error introduced",
    lambda subject: subject.errors["introduced"].to_dict(),
    combine="max",
)
"""The difference where a node runs on the original's values, relative to the norm of the original's."""
