"""A transformed model in use: by ``torch.compile``, or as a file."""

from fxlab.deployment.as_backend import as_backend

__all__ = ["as_backend"]
