"""The rooms that know Jupyter: :func:`inspect` puts a session on the screen of a notebook."""

try:
    import anywidget  # noqa: F401
    import ipywidgets  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"fxlab.inspect needs {error.name}. Install it with: pip install 'fxlab[notebook]'", name=error.name
    ) from error

from fxlab.notebook.inspect_model import inspect
from fxlab.notebook.inspector import Inspector

__all__ = ["Inspector", "inspect"]
