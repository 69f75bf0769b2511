"""``fxlab passes``: the passes on offer."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode


def passes(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """List the passes of fxlab and of other installed packages, in the order of their application."""
    from fxlab.transformations import offered

    return Answer({}, {"passes": offered().table.reset_index()}), ExitCode.DONE
