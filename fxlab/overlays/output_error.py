"""How far the values are from the original's."""

from fxlab.overlays.overlay import Source

OUTPUT_ERROR = Source(
    "output-error", "Output error", lambda subject: subject.errors["accumulated"].to_dict(), combine="max"
)
"""The difference that has accumulated up to a node, relative to the norm of the original's value."""
