"""``fxlab export``: a model with passes as a file that other programs run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.judged import code_of, facts_of, of_graphs, pass_table
from fxlab.command_line.progress import Progress


def export(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, write it as what the file's suffix says, and judge the file by the model."""
    from fxlab.command_line.passed_session import chosen_passes, session_with_passes
    from fxlab.deployment import files

    path = Path(options.output)
    if missing := files.missing_package(path.suffix):
        raise CommandError(f"-o {path}: {missing}.")
    chosen = chosen_passes(options.passes)
    with Progress(len(chosen[1]) + 4, verbose=options.verbose) as progress:
        session, source = session_with_passes(options, progress, chosen, needs_weights=True)
        with (
            progress.step("write"),
            ends_with(ExitCode.NOT_EXPORTED, files.ExportError, TypeError, ValueError),
            ends_with(ExitCode.BAD_USAGE, OSError, hint=f"(-o {path})"),
        ):
            written = files.export(session, path, dynamic=not options.fixed, check=False)
        with (
            progress.step("compare"),
            ends_with(ExitCode.NOT_COMPARED, Exception, hint="The file was written, and not compared."),
        ):
            verdict = files.file_verdict(session, path)
    facts = {
        **of_graphs(session, source.words),
        "file": str(path),
        "inputs": list(written.inputs),
        "outputs": list(written.outputs),
        "holds_for": list(written.conditions),
    }
    if verdict is None:
        words = "the file was not run, as onnxruntime is not installed: pip install onnxruntime"
        facts |= {"verdict": None, "reason": words}
        return Answer(facts, {"passes": pass_table(session)}), ExitCode.DONE
    tables = {"outputs": verdict.table, "passes": pass_table(session)}
    return Answer({**facts, **facts_of(verdict)}, tables), code_of(verdict, verdict.agrees)
