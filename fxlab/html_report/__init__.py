"""A session as one HTML file that needs neither a kernel nor a network."""

from fxlab.html_report.report import report

__all__ = ["report"]
