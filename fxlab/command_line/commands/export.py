"""``fxlab export``: a model with passes as a file that other programs run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.judged import code_of, facts_of, of_graphs, pass_table
from fxlab.command_line.model_source import loaded
from fxlab.command_line.pass_names import chosen_names
from fxlab.command_line.progress import Progress
from fxlab.command_line.traced_model import traced


def export(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, write it as what the file's suffix says, and judge the file by the model."""
    from fxlab.deployment import files
    from fxlab.session import Session, TransformationError
    from fxlab.transformations import offered

    path = Path(options.output)
    if missing := files.missing_package(path.suffix):
        raise CommandError(f"-o {path}: {missing}.")
    passes = offered()
    chosen = [] if options.passes is None else chosen_names(options.passes, [p.name for p in passes])
    with Progress(len(chosen) + 4, verbose=options.verbose) as progress:
        with progress.step("load"):
            source = loaded(options)
        if not source.has_data:
            raise CommandError(f"{options.model}: a model without weights cannot be exported.")
        with progress.step("trace"):
            session = Session(*traced(source, options), passes=passes)
        for name in chosen:
            with progress.step(name), ends_with(ExitCode.PASS_FAILED, TransformationError):
                session.apply(name)
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
