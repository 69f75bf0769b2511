"""Compare a trace with the model, bit for bit: on its inputs, at other sizes and with padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.fx import GraphModule

from fxlab.tracing.findings import Finding, Found
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.report import TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.verification.distinct_values import other_data, with_padding
from fxlab.tracing.verification.eager import EagerError, EagerReference, GraphRejectsInputsError
from fxlab.tracing.verification.other_sizes import Change, larger_batch, other_sizes


class DifferenceError(TraceError):
    """A graph does not compute the same as its model."""

    code = "other-results"


def check_against_eager(
    eager: EagerReference, traced: GraphModule, fakes: FakeInputs, *, on_other_data: bool
) -> list[Finding]:
    """Compare a trace with the model, on the given inputs, with padding and at other sizes.

    ``fakes``: the inputs of the run. ``on_other_data``: whether to compare on other numbers of the same sizes
    as well, since the given ones were computed with when the model was recorded. Raises TraceError if they do
    not agree.
    """
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        with_gradients = eager.first_difference_with_gradients(traced, given)
        if with_gradients != "":
            _require_no_difference(eager.first_difference(traced, given), "the inputs")
    except GraphRejectsInputsError as error:
        raise Obstacle.INPUTS_REFUSED(error=error) from error
    except EagerError as error:
        raise Obstacle.MODEL_DOES_NOT_RUN() from error.__cause__
    findings = [Found.SAME_BITS("the inputs")]
    if with_gradients:
        findings.append(Found.GRADIENTS_DIFFER("the inputs, with gradients", difference=with_gradients))
    if shared := [argument.name for argument in eager.arguments if argument.shared is not None]:
        given |= {argument.name: argument.shared for argument in eager.arguments if argument.name in shared}
        words = f"the inputs as they were given, {' and '.join(shared)} being the tensor of another input"
        findings.append(_outcome(eager, traced, iter([given]), words))
    if on_other_data:
        findings.append(_outcome_on_other_data(eager, traced))
    if (padded := with_padding(eager.arguments)) is not None:
        findings.append(_outcome(eager, traced, iter([padded]), "padded masks"))
    return findings + _check_other_sizes(eager, traced, fakes)


def _check_other_sizes(eager: EagerReference, traced: GraphModule, fakes: FakeInputs) -> list[Finding]:
    """Compare with all sizes changed at once; one by one where the model does not take that."""

    def first_taken(changes: list[Change]) -> Finding:
        for words, sizes in changes:
            finding = _outcome(eager, traced, eager.resized(sizes), words)
            if finding.code == Found.SAME_BITS.code:
                break
        return finding

    together, one_by_one = other_sizes(fakes)
    findings = [first_taken(together)] if together else []
    if not findings or findings[0].code != Found.SAME_BITS.code:
        findings += map(first_taken, one_by_one)
    larger = larger_batch(fakes)
    if len(set(larger.values())) > 1 and not any(fakes.expression(size).is_number for size in larger):
        findings.append(first_taken([("a larger batch", larger)]))
    return findings


def check_second_run(eager: EagerReference, traced: GraphModule) -> list[Finding]:
    """Compare a trace with a model that changes its attributes when both run a second time, on other data."""
    given = {argument.name: argument.value for argument in eager.arguments}
    for values in (*other_data(eager.arguments), given):
        try:
            difference = eager.difference(traced, given, values)
            break
        except (EagerError, GraphRejectsInputsError) as error:
            difference = str(error)
    if not difference:
        return [Found.SAME_BITS("a second run")]
    return [Found.SECOND_RUN_DIFFERS("a second run", difference=difference)]


def _expect_same(eager: EagerReference, traced: GraphModule, values: Mapping[str, Any], words: str) -> None:
    _require_no_difference(eager.difference(traced, values), words)


def require_as_compared(eager: EagerReference, traced: GraphModule) -> None:
    """Raise if a graph that has got checks of its own since it was compared is another one now."""
    traced.graph.lint()
    traced.recompile()
    try:
        _require_no_difference(eager.again(traced), "the inputs, with all its checks")
    except GraphRejectsInputsError as error:
        raise Obstacle.INPUTS_REFUSED(error=error) from error


def _require_no_difference(difference: str, words: str) -> None:
    if difference:
        raise DifferenceError(
            f"The recorded graph does not compute what the model computes. On {words}: {difference}"
        )


def _outcome(
    eager: EagerReference, traced: GraphModule, ways: Iterator[dict[str, Any]], words: str
) -> Finding:
    """Return the result of a comparison on the first of several inputs that the model takes."""
    left_out = None
    for values in ways:
        try:
            _expect_same(eager, traced, values, words)
        except EagerError as error:
            left_out = left_out or Found.MODEL_RAISES(words, error=error)
        except GraphRejectsInputsError as error:
            return Found.GRAPH_REFUSES(words, error=error)
        else:
            return Found.SAME_BITS(words)
    return left_out or Found.NO_SUCH_INPUTS(words)


def _outcome_on_other_data(eager: EagerReference, traced: GraphModule) -> Finding:
    """Return the result of a comparison on the first other data that both take."""
    words = "other data"
    left_out = Found.NO_SUCH_INPUTS(words)
    for values in other_data(eager.arguments):
        try:
            _expect_same(eager, traced, values, words)
        except EagerError as error:
            left_out = Found.MODEL_RAISES(words, error=error)
        except GraphRejectsInputsError as error:
            left_out = Found.GRAPH_REFUSES(words, error=error)
        else:
            return Found.SAME_BITS(words)
    return left_out
