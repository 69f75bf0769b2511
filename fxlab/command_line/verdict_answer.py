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
    """Return a few facts of a verdict, and its exit code; ``agrees`` is that of the result that it is of."""
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


def of_graphs(session: Session, words: str) -> dict[str, Any]:
    """Return the name of the model, in words, and how many nodes it has and had."""
    return {
        "model": words,
        "nodes_before": len(session.original.graph.nodes),
        "nodes_after": len(session.graph_module.graph.nodes),
    }


def pass_table(session: Session) -> pd.DataFrame:
    """Return a row for each pass that is on: its changes, and how many candidates it has refused."""
    import pandas as pd

    rows = [(p.name, str(session.changes(p)), _refused(session, p)) for p in session.applied]
    return pd.DataFrame(rows, columns=["pass", "changes", "refused"])


def _first_that_differs(session: Session) -> Transformation:
    """Return the lowest pass of the stack with which the model differs."""
    from fxlab.validation import Reference, Status

    reference = Reference(session.original, session.inputs)
    for transformation, stage in zip(session.applied, session.stages[1:], strict=True):
        if reference.verdict(stage).status is Status.DIFFERENT:
            return transformation
    raise AssertionError("the topmost stage differs")


def _refused(session: Session, pass_: Transformation) -> int:
    """Return how many candidates a pass has refused; a function that has no candidates refuses none."""
    if pass_.explains_by_running:
        return 0
    explained = session.explain(pass_)
    return int(explained["candidate"][~explained["matched"].astype(bool)].nunique())
