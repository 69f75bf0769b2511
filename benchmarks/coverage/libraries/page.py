"""``docs/coverage_libraries.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.coverage.libraries.sweep import LIBRARIES
from benchmarks.coverage.results import (
    INPUTS,
    NOT_TRIED,
    REFUSED,
    RIGHT,
    WRONG,
    Result,
    cell,
    limits_cells,
    summary,
    versions,
)
from fxlab.tracing.report import DYNAMIC


def counts(results: Sequence[Result]) -> list[str]:
    """Return the counts of models and of other inputs, as lines of tables."""
    found = _other_inputs(results)
    tried = max(1, sum(found.values()))
    return [
        *summary(results, models="Models", others="on all other inputs"),
        "",
        "| | Other inputs | |",
        "|---|---|---|",
        f"| that the models take | {sum(found.values())} | |",
        f"| eager's own bits | {found[RIGHT]} | {found[RIGHT] / tried:.1%} |",
        f"| refused in words | {found[REFUSED]} | {found[REFUSED] / tried:.1%} |",
        f"| other numbers than eager, or another error | {found[WRONG]} | {found[WRONG] / tried:.1%} |",
    ]


def report(results: Sequence[Result]) -> str:
    """Return the page."""
    lines = [
        "# Which models of other libraries trace",
        "",
        f"Made by `make coverage TASK=libraries` with {versions('torch', *LIBRARIES.values())}: models with "
        "random weights, compared with eager bit for bit on the inputs that they were traced on and on "
        "others: other values, each size larger and smaller, all sizes at once. Inputs that a model itself "
        "refuses are not counted. [Models of transformers](coverage.md).",
        "",
        *counts(results),
        "",
        "| Library | Models | Run eagerly | Eager's own bits | Other inputs | Equal | Refused | Wrong |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(library, of) for library in LIBRARIES if (of := _of(library, results))),
        "",
        "## Where a traced graph is specialised",
        "",
        "| Model | Traced on | Checked | Why |",
        "|---|---|---|---|",
        *(f"| {r.name} | {limits_cells(r)} |" for r in results if r.is_limited),
        "",
        "## Not tried",
        "",
        "| Model | | Why |",
        "|---|---|---|",
        *(f"| {r.name} | {r.outcome} | {cell(r.reason)} |" for r in results if r.outcome in NOT_TRIED),
        "",
        "## Equal on all inputs that were tried",
        "",
        ", ".join(r.name for r in results if r.is_right_everywhere and r.outcome == DYNAMIC) + ".",
    ]
    return "\n".join(lines) + "\n"


def _of(library: str, results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.name.partition("/")[0] == library]


def _line(library: str, results: list[Result]) -> str:
    run_eagerly = sum(r.outcome not in NOT_TRIED for r in results)
    found = _other_inputs(results)
    cells = (
        library,
        len(results),
        run_eagerly,
        sum(r.is_right for r in results),
        sum(found.values()),
        found[RIGHT],
        found[REFUSED],
        found[WRONG],
    )
    return f"| {' | '.join(map(str, cells))} |"


def _other_inputs(results: Iterable[Result]) -> Counter[str]:
    return Counter(how for r in results for words, how in r.checks.items() if words != INPUTS)
