"""The tables of coverage: counts for each group of models, and a row for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks import measured
from benchmarks.coverage.results import INPUTS, NOT_TRIED, REFUSED, RIGHT, WRONG, Result

COUNTS = "coverage"
REASON_LENGTH = 120


def counts(task: str, groups: Mapping[str, Sequence[Result]]) -> pd.DataFrame:
    """Return a row for each group: a head of transformers' models, or a library."""
    return pd.DataFrame(_counted(task, group, results) for group, results in groups.items())


def models(groups: Mapping[str, Sequence[Result]]) -> pd.DataFrame:
    """Return a row for each model: what it was traced on, and the inputs that its graph is not right for."""
    return pd.DataFrame(
        {
            "group": group,
            "model": result.name,
            "traced on": result.outcome,
            "refused": _places(result, REFUSED),
            "wrong": _places(result, WRONG),
            "why": result.reason[:REASON_LENGTH],
        }
        for group, results in groups.items()
        for result in results
    )


def write(command: str, task: str, groups: Mapping[str, Sequence[Result]], made_with: str) -> None:
    """Write both tables, and the row of the page."""
    found = counts(task, groups)
    all_models, run_eagerly, right, everywhere, refuse, wrong = found[
        ["models", "run eagerly", "equal", "equal everywhere", "refuse", "wrong"]
    ].sum()
    figure = (
        f"{run_eagerly} of {all_models} tiny models run eagerly; the graphs of {right} give eager's own "
        f"bits, of {everywhere} on all other inputs as well; {refuse} refuse some of these, {wrong} give "
        "other numbers"
    )
    stored = measured.merged(COUNTS, found, "task")
    tables = {COUNTS: stored, f"{COUNTS}_{task}": models(groups)}
    measured.write(command, figure, tables, made_with=made_with)


def _counted(task: str, group: str, results: Sequence[Result]) -> dict[str, object]:
    run_eagerly = [result for result in results if result.outcome not in NOT_TRIED]
    checks = [set(result.checks.values()) for result in run_eagerly]
    others = Counter(how for r in results for words, how in r.checks.items() if words != INPUTS)
    return {
        "task": task,
        "group": group,
        "models": len(results),
        "run eagerly": len(run_eagerly),
        "equal": sum(result.is_right for result in run_eagerly),
        "equal everywhere": sum(result.is_right_everywhere for result in run_eagerly),
        "refuse": sum(REFUSED in found for found in checks),
        "wrong": sum(WRONG in found for found in checks),
        "other inputs": sum(others.values()),
        "equal there": others[RIGHT],
    }


def _places(result: Result, how: str) -> str:
    return ", ".join(words for words, found in result.checks.items() if found == how)
