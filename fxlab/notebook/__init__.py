"""The rooms that know Jupyter: :func:`inspect` puts a session on the screen of a notebook."""

from fxlab.notebook.inspect_model import inspect
from fxlab.notebook.inspector import Inspector

__all__ = ["Inspector", "inspect"]
