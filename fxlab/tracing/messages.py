"""Messages of a trace: abandoned rungs, a specialised graph, the line of a failure."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from fxlab.base.author_frames import levels_to_author
from fxlab.tracing.model_code.running_code import where_raised
from fxlab.tracing.report import Found, TraceReport, TraceWarning
from fxlab.tracing.shapes.symbolic_sizes import without_marks
from fxlab.tracing.torch_private import GuardOnDataDependentSymNode

_MOST_LIMITS = 10
"""Listed in a warning."""
_NOT_AS_NOW = Found.NEEDS_GRADIENTS.code


@dataclass(frozen=True)
class Step:
    """A rung of the ladder that was left."""

    rung: str
    cause: str
    """Why, in words and with the line of the model."""
    raw: str
    """The error, in full."""

    @classmethod
    def because_of(cls, error: Exception, rung: str) -> Step:
        """Return the step that an error has made necessary."""
        raised = f"{type(error).__name__}: {without_marks(str(error))}"
        return cls(rung, f"{_cause(error)} {place_of(error)}".strip(), raised)


def warn_of_limits(report: TraceReport, steps: Sequence[Step]) -> None:
    """Warn if a traced graph is specialised."""
    # Everybody knows that a model is in a mode; a graph that needs it says so when it runs.
    told = (f for f in report.limits() if f.kind not in ("mode", "setting") or f.code == _NOT_AS_NOW)
    limits = [f"{f.what} {f.detail} {f.where}".strip() for f in told]
    if len(limits) > _MOST_LIMITS:
        limits[_MOST_LIMITS:] = [f"and {len(limits) - _MOST_LIMITS} more, in meta['trace'].table"]
    if report.steps_down:
        limits.insert(0, f"it was traced on {report.rung}, because of:")
        rungs: dict[str, list[str]] = {}
        for step in steps:
            rungs.setdefault(step.cause, []).append(step.rung)
        limits[1:1] = [f"  {'; '.join(names)}: {cause}" for cause, names in rungs.items()]
    if limits:
        lines = "\n  ".join(limits)
        text = f"The traced graph is specialised:\n  {lines}"
        warnings.warn(text, TraceWarning, stacklevel=levels_to_author())


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (without_marks(str(error)).strip().splitlines() or [type(error).__name__])[0][:300]


def placed_line(error: BaseException) -> str:
    """Return the first line of an error's message, and the line of the model that it came through."""
    return f"{first_line(error)} {place_of(error)}".strip()


def place_of(error: BaseException) -> str:
    """Return the line of the model that an error came through, in brackets."""
    found = where_raised(error)
    return f"(at {found})" if found else ""


def _cause(error: Exception) -> str:
    if isinstance(error, GuardOnDataDependentSymNode):
        return "Python decides on data, or on a size that data decides on"
    return first_line(error)
