"""The architectures of transformers: base models, models with a head for each task, and whole models."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.coverage.results import (
    NOT_TRIED,
    Result,
    cell,
    limits_cells,
    one_line,
    summary,
    trace_and_compare,
    versions,
)
from benchmarks.whole_models import OTHER_SIZES, whole_input_names
from fxlab.models.running import run
from fxlab.tracing import example_inputs
from fxlab.tracing.report import DYNAMIC

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from zoo import SHRINKS, model_types, tasks, tiny_of_type

BASE, WHOLE_MODELS = "base", "whole"
__all__ = ["BASE", "model_types", "tasks"]


def tried(model_type: str, task: str = BASE) -> Result:
    """Build, run, trace and compare one architecture."""
    result = Result(model_type)
    model = None
    for shrink in SHRINKS:
        try:
            model = tiny_of_type(model_type, task=BASE if task == WHOLE_MODELS else task, shrink=shrink)
            result.outcome = "no inputs"
            names = whole_input_names(model) if task == WHOLE_MODELS else None
            inputs = example_inputs(model, input_names=names)
            result.outcome = "not run"
            with torch.no_grad():
                run(model, inputs)
        except ImportError as error:
            result.reason = one_line(error)
            return result
        except Exception as error:  # a configuration may fail in any way
            result.reason = one_line(error)
        else:
            break
    else:
        return result
    others = (
        (words, example_inputs(model, input_names=names, **sizes))
        for words, sizes in OTHER_SIZES.items()
        if task == WHOLE_MODELS or words in ("another batch size", "another length")
    )
    return trace_and_compare(result, model, inputs, others)


def counts(results: Sequence[Result]) -> list[str]:
    """Return the counts, as lines of a table."""
    return summary(results, models="Architectures", others="at another batch size and length")


def report(results: list[Result]) -> str:
    """Return ``docs/coverage.md``."""
    lines = [
        "# Which architectures trace",
        "",
        f"Made by `make coverage` with {versions('torch', 'transformers')}: a tiny, randomly initialised "
        "base model of each architecture that transformers knows, compared with eager bit for bit. "
        "[Models with heads](coverage_heads.md).",
        "",
        *counts(results),
        "",
        "## Where a traced graph is specialised",
        "",
        "| Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|",
        *(f"| {r.name} | {limits_cells(r)} |" for r in results if r.is_limited),
        "",
        "## Not tried",
        "",
        "No tiny model was made of these, or it does not run on inputs made from its configuration.",
        "",
        "| Architecture | | Why |",
        "|---|---|---|",
        *(f"| {r.name} | {r.outcome} | {cell(r.reason)} |" for r in results if r.outcome in NOT_TRIED),
        "",
        "## Right at every size that was tried",
        "",
        ", ".join(r.name for r in results if r.is_right_everywhere and r.outcome == DYNAMIC) + ".",
    ]
    return "\n".join(lines) + "\n"


def report_of_whole(results: list[Result]) -> str:
    """Return ``docs/coverage_whole.md``."""
    lines = [
        "# Whole models, with images and sound",
        "",
        f"Made by `make coverage TASK=whole` with {versions('torch', 'transformers')}: [base "
        "models](coverage.md) that are no parts of others, on as many kinds of input as each takes together, "
        "with every second row padded. They are compared at another number of images (one for each text of a "
        "batch) and at four other lengths.",
        "",
        *counts(results),
        "",
        "## Where a graph refuses a size that the model takes",
        "",
        "| Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|",
        *(f"| {r.name} | {limits_cells(r)} |" for r in results if r.checks and not r.is_right_everywhere),
    ]
    return "\n".join(lines) + "\n"


def report_of_heads(by_task: Mapping[str, list[Result]]) -> str:
    """Return ``docs/coverage_heads.md``."""
    lines = [
        "# Which models with heads trace",
        "",
        f"Made by `make coverage TASK=heads` with {versions('torch', 'transformers')}, as [that of the "
        "base models](coverage.md).",
        "",
        "| Task | Architectures | Run eagerly | Eager's own bits | At other sizes too |",
        "|---|---|---|---|---|",
        *(f"| {task} | {len(results)} | {_shares(results)} |" for task, results in by_task.items()),
        "",
        "## Where a traced graph is specialised",
        "",
        "| Task | Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|---|",
        *(
            f"| {task} | {r.name} | {limits_cells(r)} |"
            for task, results in by_task.items()
            for r in results
            if r.is_limited and not r.is_right_everywhere
        ),
    ]
    return "\n".join(lines) + "\n"


def _shares(results: list[Result]) -> str:
    run_eagerly = [r for r in results if r.outcome not in NOT_TRIED]
    right = sum(r.is_right for r in run_eagerly)
    return f"{len(run_eagerly)} | {right} | {sum(r.is_right_everywhere for r in run_eagerly)}"
