"""How many floating-point operations nodes make."""

from fxlab.overlays.overlay import Source

FLOPS = Source("flops", "FLOPs", lambda subject: subject.profile["flops"].to_dict())
