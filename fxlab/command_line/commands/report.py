"""``fxlab report``: what passes do to a model, as one HTML file, and whether it matters, as an exit code."""

from __future__ import annotations

import argparse

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.judged import judged, of_graphs, pass_table, write_page
from fxlab.command_line.model_source import loaded
from fxlab.command_line.pass_names import chosen_names
from fxlab.command_line.progress import Progress
from fxlab.command_line.traced_model import traced


def report(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, compare the two, and write the report."""
    from fxlab.session import Session, TransformationError
    from fxlab.transformations import offered

    passes = offered()
    names = [p.name for p in passes]
    chosen = [] if options.passes is None else chosen_names(options.passes, names)
    steps = len(chosen) + 3 + bool(options.save) + bool(options.output)
    with Progress(steps, verbose=options.verbose) as progress:
        with progress.step("load"):
            source = loaded(options)
        with progress.step("trace"):
            session = Session(*traced(source, options), passes=passes)
        for name in chosen:
            with progress.step(name), ends_with(ExitCode.PASS_FAILED, TransformationError):
                session.apply(name)
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
