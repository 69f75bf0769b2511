"""``fxlab check``: whether a model with a saved stack of passes is the same, on one batch or on many."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import Answer
from fxlab.command_line.commands.report import report
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.judged import code_of, facts_of, judged, of_graphs, pass_table, write_page
from fxlab.command_line.model_source import given_batches, loaded
from fxlab.command_line.progress import Progress
from fxlab.command_line.traced_model import traced

if TYPE_CHECKING:
    from fxlab.session import Session


def check(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Load a saved session with a model, say what is different, and judge it; or judge passes by name."""
    if options.session is None:
        if options.passes is None:
            raise CommandError("--session: expected a saved stack, or --passes.")
        options.save = None
        return report(options)
    with Progress(4 + bool(options.output), verbose=options.verbose) as progress:
        with progress.step("load"):
            source = loaded(options)
        with progress.step("trace"):
            model, inputs = traced(source, options)
        with progress.step("passes"):
            session, differences = _loaded_session(options.session, model, inputs)
        with progress.step("compare"):
            if options.data:
                found, tables, code = _evaluated(session, Path(options.data))
            else:
                found, tables, code = judged(session, source.has_data)
        facts = {**of_graphs(session, source.words), **found, "not_as_saved": differences}
        if differences and options.strict and code is ExitCode.DONE:
            code = ExitCode.DIFFERENT
        if options.output:
            with progress.step("write"):
                write_page(session, options.output)
            facts["report"] = options.output
    return Answer(facts, {**tables, "passes": pass_table(session)}), code


def _loaded_session(path: str, model: Any, inputs: Any) -> tuple[Session, list[str]]:
    """Return the session, and in words what is different from the one that was saved."""
    from fxlab.session import TransformationError, load_session

    with (
        warnings.catch_warnings(record=True) as caught,
        ends_with(ExitCode.PASS_FAILED, TransformationError),
        ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(--session)"),
    ):
        warnings.simplefilter("always", RuntimeWarning)
        session = load_session(path, model, inputs)
    return session, [str(warning.message) for warning in caught if warning.category is RuntimeWarning]


def _evaluated(session: Session, path: Path) -> tuple[dict[str, Any], dict[str, Any], ExitCode]:
    """Judge a session on all batches of a file."""
    import torch

    from fxlab.validation import evaluate

    first = next(session.original.parameters(), None)
    batches = given_batches(path, torch.device("cpu") if first is None else first.device)
    with ends_with(ExitCode.NOT_COMPARED, TypeError, ValueError, hint="(--data)"):
        evaluation = evaluate(session, batches)
    facts = {**facts_of(evaluation.verdict), "batches_judged": len(evaluation.batches)}
    tables = {"batches": evaluation.batches, "measures": evaluation.table()}
    return facts, tables, code_of(evaluation.verdict, evaluation.agrees)
