"""The result of tracing one model and comparing it with eager."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fxlab
from fxlab.models.running.running import run
from fxlab.tracing.report import Found
from fxlab.values.nested import REFUSAL
from fxlab.values.tensors import same_bits, tensors_by_path

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
NOT_TRIED = ("not built", "no inputs", "not run")
INPUTS = "the inputs"
_SITE = Path(torch.__file__).parents[1]


@dataclass
class Result:
    """The outcome of one model."""

    name: str
    outcome: str = "not built"
    """What it was traced on, or ``not traced``; or why that was not tried."""
    reason: str = ""
    seconds: float = 0.0
    nodes: int = 0
    checks: dict[str, str] = field(default_factory=dict)
    """How the graph compares with eager on ``the inputs``, and on others that the model takes."""

    @property
    def is_right(self) -> bool:
        return self.checks.get(INPUTS) == RIGHT

    @property
    def is_right_everywhere(self) -> bool:
        return set(self.checks.values()) == {RIGHT}

    def note_trace(self, traced: nn.Module) -> None:
        """Note what a trace says of itself."""
        report = traced.meta["trace"]
        self.outcome, self.nodes = report.rung, len(traced.graph.nodes)  # type: ignore[arg-type]
        needless = [f for f in report.findings if f.code == Found.NEEDLESSLY_FIXED_SIZE.code]
        limits = [f"{f.what} {f.detail} {f.where}" for f in needless]
        self.reason = one_line(reasons[0]) if (reasons := [*report.steps_down, *limits]) else ""


def trace_and_compare(
    result: Result, model: nn.Module, inputs: Any, others: Iterable[tuple[str, Any]]
) -> Result:
    """Trace a model, and note how the graph compares with it on the inputs and on others, by name."""
    result.outcome, result.reason = "not traced", ""
    started = time.perf_counter()
    try:
        traced = fxlab.symbolic_trace(model, inputs)
    except Exception as error:  # whatever a model raises
        result.reason = one_line(error)
        return result
    finally:
        result.seconds = time.perf_counter() - started
    result.note_trace(traced)
    result.checks[INPUTS] = compared(model, traced, inputs) or WRONG
    for words, values in others:
        if (found := compared(model, traced, values)) is not None:
            result.checks[words] = found
    return result


def compared(model: nn.Module, traced: nn.Module, inputs: Any) -> str | None:
    """Tell whether two modules give the same bits; nothing if the model does not take the inputs."""
    try:
        expected = tensors_by_path(run(model, inputs))
    except Exception:  # whatever the model raises for inputs that it does not take
        return None
    try:
        actual = tensors_by_path(run(traced, inputs))
    except AssertionError as error:
        return REFUSED if str(error).startswith(REFUSAL) else WRONG
    except Exception:  # as may what is recorded
        return WRONG
    if actual.keys() != expected.keys():
        return WRONG
    if all(same_bits(actual[path], expected[path]) for path in expected):
        return RIGHT
    again = tensors_by_path(run(model, inputs))  # no two runs of some models agree
    return WRONG if all(same_bits(again[path], expected[path]) for path in expected) else RIGHT


def one_line(error: object) -> str:
    """Return an error in one line, without the folder that packages are installed in."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.replace(f"{_SITE}/", "")[:400]
