"""``fxlab benchmark``: the time of a model with passes, against the original."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.judged import of_graphs
from fxlab.command_line.progress import Progress


def benchmark(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Time a model alone, or with each of the passes and with all of them."""
    from fxlab.command_line.passed_session import chosen_passes, session_with_passes

    passes, names = chosen_passes(options.passes)
    with Progress(3, verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, (passes, []))
        with progress.step("time"), ends_with(ExitCode.BAD_USAGE, ValueError):
            table = session.benchmark(passes=names, each=True, rounds=options.rounds)
    table["time"] = [f"{seconds * 1000:.3g} ms" for seconds in table["time"]]
    return Answer(of_graphs(session, source.words), {"times": table}), ExitCode.DONE
