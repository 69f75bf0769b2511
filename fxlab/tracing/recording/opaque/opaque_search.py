"""Search for the parts of a model that are to stay whole, by recording it again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from torch import nn

from fxlab.tracing.messages import first_line, place_of
from fxlab.tracing.model_code.attributes import attribute_of
from fxlab.tracing.model_code.running_calls import Part, Reason, parts_raising
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.graph_builder import FEW_OPERATIONS, MOST_OPERATIONS, SizeError
from fxlab.tracing.recording.opaque.opaque_calls import CannotBeWholeError

_MOST_RUNS = 12


class _HasReasons(Protocol):
    @property
    def reasons(self) -> list[Reason]:
        """Why it is specialised."""


_Trace = TypeVar("_Trace", bound=_HasReasons)


def with_parts_whole(
    model: nn.Module,
    trace: Callable[[Mapping[Part, Reason], int], _Trace],
    failure: Exception | None,
    reasons: list[Reason],
) -> _Trace:
    """Keep those parts whole that make a plain number of a size or of data, or cannot be recorded.

    ``trace``: traces it with some parts whole, and sizes of at most so many operations. ``failure``: the
    error of the run before, which names the first parts. ``reasons``: the reasons why its graph is
    specialised, if it has raised nothing.
    """
    parts: dict[Part, Reason] = {}
    # Nothing would be left of a model of which all but the head is one node.
    base = attribute_of(model, "base_model")
    impossible: set[Part] = {type(model)}
    if isinstance(base, nn.Module):
        impossible.add(type(base))
    result: _Trace | None = None
    has_other = failure is None  # one that can be read more easily, and holds for as many images
    most_operations = FEW_OPERATIONS if isinstance(failure, SizeError) else MOST_OPERATIONS
    for _ in range(_MOST_RUNS):
        if failure is not None:
            running, what = parts_raising(failure), f"raises {first_line(failure)}"
            reasons = [Reason(running, what, place_of(failure), hides_modules=True)]
        chosen: dict[Part, Reason] = {}
        for reason in reasons:
            part = next((p for p in reason.candidates if p not in impossible and p not in parts), None)
            reason = replace(reason, hides_modules=reason.hides_modules or not has_other)
            if part is not None:
                is_stronger = reason.hides_modules and part in chosen and not chosen[part].hides_modules
                chosen[part] = reason if is_stronger else chosen.get(part, reason)
            elif failure is not None:
                raise failure
            elif reason.is_number and result is not None and (has_other or not reason.is_count):
                raise Obstacle.DECIDED_OUTSIDE(reason=reason.what)
        if result is not None and not chosen:
            return result
        parts |= chosen
        if not parts:
            raise Obstacle.NO_PART()
        result = failure = None
        try:
            result = trace(dict(parts), most_operations)
            reasons = result.reasons
        except CannotBeWholeError as error:
            impossible.add(error.part)
            reasons = [parts.pop(error.part)]
        except Exception as error:  # the model's own code runs here, and may raise anything
            failure = error
    raise Obstacle.TOO_MANY_PARTS(runs=_MOST_RUNS)
