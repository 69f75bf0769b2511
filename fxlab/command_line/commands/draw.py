"""``fxlab draw``: the graph of a model as a picture."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.judged import of_graphs
from fxlab.command_line.progress import Progress


def draw(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Draw the graph of a model, with passes applied and their nodes highlighted."""
    from fxlab.command_line.passed_session import chosen_passes, session_with_passes

    chosen = chosen_passes(options.passes)
    with Progress(3 + len(chosen[1]), verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, chosen)
        with progress.step("draw"), ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o, --open)"):
            drawing = session.draw(options.output, highlight=[*session.applied], opened=options.open)
    facts = {**of_graphs(session, source.words), "boxes": len(drawing.view.boxes), "picture": options.output}
    return Answer(facts), ExitCode.DONE
