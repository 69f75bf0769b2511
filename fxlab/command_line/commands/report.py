"""``fxlab report`` and ``check``: passes, or a saved session, on a model; judged, and written as a page."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import Answer, CommandError, ExitCode, ends_with
from fxlab.command_line.chosen_passes import chosen_passes, session_with_passes
from fxlab.command_line.model_source import loaded, traced
from fxlab.command_line.verdict_answer import judged
from fxlab.session import Session, TransformationError, load_session
from fxlab.transformations import Transformation

if TYPE_CHECKING:
    import pandas as pd


def report(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, compare the two, and write the report."""
    chosen = chosen_passes(options.passes)
    session, source = session_with_passes(options, chosen)
    found, tables, code = judged(session, source.has_data)
    facts = {**_of_graphs(session, source.words), **found}
    if options.save:
        with ends_with(ExitCode.BAD_USAGE, OSError, hint="(--save)"):
            facts["session"] = str(session.save(options.save))
    return _written(options, session, Answer(facts, tables)), code


def _written(options: argparse.Namespace, session: Session, answer: Answer) -> Answer:
    """Write the page, if one is asked for; return the answer with its path and the table of passes."""
    facts = answer.facts
    if options.output:
        from fxlab.html_report.report import report as write

        with ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o)"):
            write(session, path=options.output, title=getattr(options, "title", ""))
        facts = {**facts, "report": options.output}
    return Answer(facts, {**answer.tables, "passes": _pass_table(session)})


def _of_graphs(session: Session, words: str) -> dict[str, Any]:
    """Return the name of the model, in words, and how many nodes it has and had."""
    return {
        "model": words,
        "nodes_before": len(session.original.graph.nodes),
        "nodes_after": len(session.graph_module.graph.nodes),
    }


def _pass_table(session: Session) -> pd.DataFrame:
    """Return a row for each pass that is on: its changes, and how many candidates it has refused."""
    import pandas as pd

    rows = [(p.name, str(session.changes(p)), _refused(session, p)) for p in session.applied]
    return pd.DataFrame(rows, columns=["pass", "changes", "refused"])


def _refused(session: Session, pass_: Transformation) -> int:
    """Return how many candidates a pass has refused; a function that has no candidates refuses none."""
    if pass_.explains_by_running:
        return 0
    explained = session.explain(pass_)
    return int(explained["candidate"][~explained["matched"].astype(bool)].nunique())


def check(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Load a saved session with a model, tell the differences, and judge it; or judge passes by name."""
    if options.session is None:
        if options.passes is None:
            raise CommandError("--session: expected a saved stack, or --passes.")
        if options.strict:
            raise CommandError("--strict: expected a saved stack to compare with (--session), got --passes.")
        options.save = None
        return report(options)
    passes, named = chosen_passes(options.passes)
    source = loaded(options)
    model, inputs = traced(source, options)
    session, differences = _loaded_session(options.session, model, inputs, passes)
    on = [str(pass_.name) for pass_ in session.applied]
    if left := [name for name in named if name not in on]:
        raise CommandError(
            f"--passes: {options.session} does not switch on {', '.join(left)}. It chooses the passes; "
            "leave it out to judge others."
        )
    found, tables, code = judged(session, source.has_data)
    facts = {**_of_graphs(session, source.words), **found, "not_as_saved": differences}
    if differences and options.strict and code is ExitCode.DONE:
        code = ExitCode.DIFFERENT
    return _written(options, session, Answer(facts, tables)), code


def _loaded_session(
    path: str, model: Any, inputs: Any, passes: list[Transformation]
) -> tuple[Session, list[str]]:
    """Return the session, and in words its differences from the one that was saved."""
    with (
        warnings.catch_warnings(record=True) as caught,
        ends_with(ExitCode.PASS_FAILED, TransformationError),
        ends_with(ExitCode.BAD_USAGE, OSError, hint="(--session)"),
        ends_with(ExitCode.BAD_USAGE, ValueError, hint="(--session; passes in code: --passes file.py:name)"),
    ):
        warnings.simplefilter("always", RuntimeWarning)
        session = load_session(path, model, inputs, passes=passes)
    return session, [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
