"""``fxlab passes``: the passes on offer."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode


def passes(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """List the passes of fxlab and of other installed packages, in the order of their application."""
    import pandas as pd

    from fxlab.transformations import available, installed

    rows = [
        (p.name, origin, " ".join(str(p.description).strip().split("\n\n")[0].split()))
        for origin, offered in (("fxlab", [cls() for cls in available()]), ("installed", installed()))
        for p in offered
    ]
    table = pd.DataFrame(rows, columns=["name", "from", "description"])
    return Answer({}, {"passes": table}), ExitCode.DONE
