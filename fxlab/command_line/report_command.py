"""``fxlab report``: what passes do to a model, as one HTML file, and whether it matters, as an exit code."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import ExitCode, ends_with
from fxlab.command_line.model_source import loaded
from fxlab.command_line.pass_names import chosen_names
from fxlab.command_line.progress import Progress
from fxlab.command_line.traced_model import traced

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session
    from fxlab.transformations import Transformation
    from fxlab.validation import Verdict


def report(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Apply passes to a model, compare the two, and write the report."""
    from fxlab.session import Session, TransformationError
    from fxlab.transformations import offered
    from fxlab.validation import Status

    passes = offered()
    names = [p.name for p in passes]
    chosen = [] if options.passes is None else chosen_names(options.passes, names)
    with Progress(len(chosen) + 3 + bool(options.output), verbose=options.verbose) as progress:
        with progress.step("load"):
            source = loaded(options)
        with progress.step("trace"):
            session = Session(*traced(source, options), passes=passes)
        for name in chosen:
            with progress.step(name), ends_with(ExitCode.PASS_FAILED, TransformationError):
                session.apply(name)
        facts = {
            "model": source.words,
            "nodes_before": len(session.original.graph.nodes),
            "nodes_after": len(session.graph_module.graph.nodes),
        }
        tables = {"passes": _pass_table(session)}
        code = ExitCode.DONE
        with progress.step("compare"):
            verdict = _verdict(session) if source.has_data else None
        if verdict is None:
            facts |= {"verdict": None, "reason": "without weights nothing was compared"}
        else:
            facts |= {"verdict": str(verdict.status), "ratio": verdict.ratio, "reason": verdict.reason}
            facts["compared_elements"] = verdict.compared
            tables = {"outputs": verdict.table, **tables}
            if verdict.status is Status.NOTHING_COMPARED:
                code = ExitCode.NOT_COMPARED
            elif not verdict.agrees:
                code = ExitCode.DIFFERENT
                facts["different_since"] = _first_that_differs(session).name
        if options.output:
            with progress.step("write"), ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o)"):
                _write(session, options.output)
            facts["report"] = options.output
    return Answer(facts, tables), code


def _verdict(session: Session) -> Verdict:
    with ends_with(ExitCode.NOT_COMPARED, Exception, hint="The outputs were not compared."):
        return session.verdict()


def _first_that_differs(session: Session) -> Transformation:
    """Return the lowest pass of the stack with which the model is another one."""
    from fxlab.validation import Reference, Status

    reference = Reference(session.original, session.inputs)
    for transformation, stage in zip(session.applied, session.stages[1:], strict=True):
        if reference.verdict(stage).status is Status.DIFFERENT:
            return transformation
    raise AssertionError("the topmost stage differs")


def _pass_table(session: Session) -> pd.DataFrame:
    import pandas as pd

    rows = [(p.name, str(session.changes(p)), _refused(session.explain(p))) for p in session.applied]
    return pd.DataFrame(rows, columns=["pass", "changes", "refused"])


def _refused(explained: pd.DataFrame) -> int:
    """Return how many candidates a pass has refused."""
    return int(explained["candidate"][~explained["matched"].astype(bool)].nunique())


def _write(session: Session, path: str) -> None:
    from fxlab.html_report import report as write_report

    write_report(session, path=path)
