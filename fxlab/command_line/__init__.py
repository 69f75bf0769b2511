"""The command ``fxlab``: reports, traces and the list of passes, for CI and for people without a notebook."""

from fxlab.command_line.main import main

__all__ = ["main"]
