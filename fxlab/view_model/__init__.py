"""A session as data for pages: the widget, or a report. Nothing here knows Jupyter."""
