"""The verdict of a session as the answer of a command, with its exit code: report, check, compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import ExitCode, ends_with

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session
    from fxlab.transformations import Transformation
    from fxlab.validation import Verdict


def judged(session: Session, has_data: bool) -> tuple[dict[str, Any], dict[str, pd.DataFrame], ExitCode]:
    """Return facts and tables of a session's verdict on its inputs, and the exit code that it asks for."""
    if not has_data:
        return {"verdict": None, "reason": "without weights nothing was compared"}, {}, ExitCode.DONE
    with ends_with(ExitCode.NOT_COMPARED, Exception, hint="The outputs were not compared."):
        verdict = session.verdict()
    facts, code = facts_of(verdict, verdict.agrees)
    if code is ExitCode.DIFFERENT:
        facts["different_since"] = _first_that_differs(session).name
    return facts, {"outputs": verdict.table}, code


def facts_of(verdict: Verdict, agrees: bool) -> tuple[dict[str, Any], ExitCode]:
    """Return a few facts of a verdict, and its exit code; ``agrees``: whether the whole result agrees."""
    from fxlab.validation import Status

    code = ExitCode.DONE if agrees else ExitCode.DIFFERENT
    if verdict.status is Status.NOTHING_COMPARED:
        code = ExitCode.NOT_COMPARED
    facts = {
        "verdict": str(verdict.status),
        "agrees": agrees,
        "ratio": verdict.ratio,
        "reason": verdict.reason,
        "compared_elements": verdict.compared,
    }
    return facts, code


def _first_that_differs(session: Session) -> Transformation:
    """Return the lowest pass of the stack with which the model differs."""
    from fxlab.validation import Reference, Status

    reference = Reference(session.original, session.inputs)
    for transformation, stage in zip(session.applied, session.stages[1:], strict=True):
        if reference.verdict(stage).status is Status.DIFFERENT:
            return transformation
    raise AssertionError("the topmost stage differs")
