"""The rooms that know Jupyter: :func:`inspect` puts a session on the screen of a notebook."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.notebook.inspect_model import inspect as inspect
    from fxlab.notebook.inspector import Inspector as Inspector
else:
    __all__, __getattr__ = on_first_use(__name__)

try:
    import anywidget  # noqa: F401
    import ipywidgets  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"fxlab.inspect needs {error.name}. Install it with: pip install 'fxlab[notebook]'", name=error.name
    ) from error
