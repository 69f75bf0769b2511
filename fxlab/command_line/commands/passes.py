"""``fxlab passes``: the passes on offer."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode


def passes(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """List the passes of fxlab and of other installed packages, in the order of their application."""
    import pandas as pd

    from fxlab.transformations import offered

    rows = [
        (
            p.name,
            f"{type(p).__module__.partition('.')[0]}.{type(p).__name__}",
            " ".join(str(p.description).strip().split("\n\n")[0].split()),
        )
        for p in offered()
    ]
    table = pd.DataFrame(rows, columns=["name", "class", "description"])
    return Answer({}, {"passes": table}), ExitCode.DONE
