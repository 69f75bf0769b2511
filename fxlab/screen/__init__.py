"""What pages show of a session, whoever puts it there: :func:`report` writes it to a file.

The widget of :mod:`fxlab.notebook` shows the same. Nothing here knows Jupyter.
"""

from fxlab.screen.find_nodes import find_nodes
from fxlab.screen.html_report import report

__all__ = ["find_nodes", "report"]
