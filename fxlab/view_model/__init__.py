"""A session as data for pages: the widget, or a report. Nothing here knows Jupyter."""

from fxlab.view_model.search.find_nodes import find_nodes

__all__ = ["find_nodes"]
