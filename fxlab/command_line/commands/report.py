"""``fxlab report``: what passes do to a model, as one HTML file, and whether it matters, as an exit code."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.judged import judged, of_graphs, pass_table, write_page
from fxlab.command_line.progress import Progress


def report(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, compare the two, and write the report."""
    from fxlab.command_line.passed_session import chosen_passes, session_with_passes

    chosen = chosen_passes(options.passes)
    steps = len(chosen[1]) + 3 + bool(options.save) + bool(options.output)
    with Progress(steps, verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, chosen)
        with progress.step("compare"):
            found, tables, code = judged(session, source.has_data)
        facts = {**of_graphs(session, source.words), **found}
        if options.save:
            with progress.step("save"), ends_with(ExitCode.BAD_USAGE, OSError, hint="(--save)"):
                facts["session"] = str(session.save(options.save))
        if options.output:
            with progress.step("write"):
                write_page(session, options.output)
            facts["report"] = options.output
    return Answer(facts, {**tables, "passes": pass_table(session)}), code
