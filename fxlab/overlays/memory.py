"""How much memory nodes need while they run."""

from fxlab.overlays.overlay import Source

MEMORY = Source(
    "memory", "Peak memory", lambda subject: subject.profile["peak_memory"].to_dict(), combine="max", unit="B"
)
"""The most bytes of new tensors that are alive at once."""
