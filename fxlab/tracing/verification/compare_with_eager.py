"""Compare a trace with the model, bit for bit: on its inputs, at other sizes and with padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.fx import GraphModule

from fxlab.tracing.report import Finding, TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.verification.distinct_values import other_data, with_padding
from fxlab.tracing.verification.eager import Eager, EagerError, RefusalError
from fxlab.tracing.verification.other_sizes import Change, larger_batch, other_sizes

_SAME = "same bits as the model"


class DifferenceError(TraceError):
    """A graph does not compute what the model computes."""


def check_against_eager(
    eager: Eager, traced: GraphModule, fakes: FakeInputs, *, on_other_data: bool
) -> list[Finding]:
    """Compare a trace with the model, on the given inputs, with padding and at other sizes.

    Parameters
    ----------
    eager
        The model.
    traced
        The trace.
    fakes
        The inputs of the run.
    on_other_data
        Whether to compare on other numbers of the same sizes as well, since the given ones were computed with
        when the model was recorded.

    Raises
    ------
    TraceError
        If they do not agree.
    """
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        _expect_same(eager, traced, given, "the inputs")
    except RefusalError as error:
        raise TraceError(f"The graph refuses the inputs that it was made of: {error}") from error
    except EagerError as error:
        raise TraceError("The model does not run on these inputs") from error.__cause__
    findings = [Finding("check", "the inputs", _SAME)]
    if shared := [argument.name for argument in eager.arguments if argument.shared is not None]:
        given |= {argument.name: argument.shared for argument in eager.arguments if argument.name in shared}
        words = f"the inputs as they were given, {' and '.join(shared)} being the tensor of another input"
        findings.append(Finding("check", words, _outcome(eager, traced, iter([given]), words)))
    if on_other_data:
        findings.append(Finding("check", "other data", _outcome_on_other_data(eager, traced)))
    if (padded := with_padding(eager.arguments)) is not None:
        outcome = _outcome(eager, traced, iter([padded]), "padded masks")
        findings.append(Finding("check", "padded masks", outcome))
    return findings + _check_other_sizes(eager, traced, fakes)


def _check_other_sizes(eager: Eager, traced: GraphModule, fakes: FakeInputs) -> list[Finding]:
    """Compare with all sizes changed at once; one by one where the model does not take that."""

    def first_taken(changes: list[Change]) -> Finding:
        for words, sizes in changes:
            finding = Finding("check", words, _outcome(eager, traced, eager.resized(sizes), words))
            if finding.detail == _SAME:
                break
        return finding

    together, one_by_one = other_sizes(fakes)
    findings = [first_taken(together)] if together else []
    if not findings or findings[0].detail != _SAME:
        findings += map(first_taken, one_by_one)
    larger = larger_batch(fakes)
    if len(set(larger.values())) > 1 and not any(fakes.expression(size).is_number for size in larger):
        findings.append(first_taken([("a larger batch", larger)]))
    return findings


def check_second_run(eager: Eager, traced: GraphModule) -> list[Finding]:
    """Compare a trace with a model that changes its attributes when both run a second time."""
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        difference = eager.difference(traced, given, times=2)
    except (EagerError, RefusalError) as error:
        difference = str(error)
    if not difference:
        return [Finding("check", "a second run", _SAME)]
    return [
        Finding("state", "a second run", f"the model has changed what the graph has not: {difference[:200]}")
    ]


def _expect_same(eager: Eager, traced: GraphModule, values: Mapping[str, Any], words: str) -> None:
    difference = eager.difference(traced, values)
    if difference:
        raise DifferenceError(
            f"The recorded graph does not compute what the model computes. On {words}: {difference}"
        )


def _outcome(eager: Eager, traced: GraphModule, ways: Iterator[dict[str, Any]], words: str) -> str:
    """Return what comes of a comparison on the first of several inputs that the model takes."""
    left_out = ""
    for values in ways:
        try:
            _expect_same(eager, traced, values, words)
        except EagerError as error:
            left_out = left_out or f"left out: the model raises {str(error)[:200]}"
        except RefusalError as error:
            return f"refused: {str(error)[:200]}"
        else:
            return _SAME
    return left_out


def _outcome_on_other_data(eager: Eager, traced: GraphModule) -> str:
    """Return what comes of a comparison on the first other data that both take."""
    left_out = "left out: there is no other data"
    for values in other_data(eager.arguments):
        try:
            _expect_same(eager, traced, values, "other data")
        except EagerError as error:
            left_out = f"left out: the model raises {str(error)[:200]}"
        except RefusalError as error:
            left_out = f"refused: {str(error)[:200]}"
        else:
            return _SAME
    return left_out
