"""Compare a trace with its model, bit for bit: on its inputs, at other sizes and with padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
from torch.fx import GraphModule

from fxlab.tracing.bound_inputs import Size, name_of_size
from fxlab.tracing.report import Finding, Found, Obstacle, TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import holds
from fxlab.tracing.slices import Outcomes
from fxlab.tracing.verification.eager import (
    EagerError,
    EagerReference,
    GraphRejectsInputsError,
    other_data,
    with_padding,
)


class DifferenceError(TraceError):
    """A graph does not compute the same as its model."""

    code = "other-results"


def check_given(eager: EagerReference, traced: GraphModule) -> list[Finding]:
    """Compare the very module that is returned, with all its checks, on the given inputs.

    Raises TraceError if it does not agree with the model.
    """
    given = {argument.name: argument.value for argument in eager.arguments}
    try:
        with_gradients = eager.difference_with_gradients(traced, given)
        if with_gradients != "":
            _require_no_difference(eager.difference(traced, given), "the inputs")
    except GraphRejectsInputsError as error:
        raise Obstacle.INPUTS_REFUSED(error=error) from error
    except EagerError as error:
        raise Obstacle.MODEL_DOES_NOT_RUN() from error.__cause__
    findings = [Found.SAME_BITS("the inputs")]
    if with_gradients:
        findings.append(Found.GRADIENTS_DIFFER("the inputs, with gradients", difference=with_gradients))
    return findings


def check_others(
    eager: EagerReference, traced: GraphModule, fakes: FakeInputs, outcomes: Outcomes, *, on_other_data: bool
) -> list[Finding]:
    """Compare a trace with the model on other inputs: at other sizes and with padding, together if it can be.

    ``fakes``: the inputs of the run. ``outcomes``: those of the trace so far. ``on_other_data``: whether to
    compare on other numbers of the same sizes as well, since the given ones were computed with when the model
    was recorded. Raises TraceError if they do not agree.
    """
    findings: list[Finding] = []
    asked = outcomes.asked_again()

    def outcome(ways: Iterable[Mapping[str, Any]], words: str) -> Finding:
        return asked(lambda: _outcome(eager, traced, ways, words))

    if shared := [argument.name for argument in eager.arguments if argument.shared is not None]:
        given = {argument.name: argument.value for argument in eager.arguments}
        given |= {argument.name: argument.shared for argument in eager.arguments if argument.name in shared}
        words = f"the inputs as they were given, {' and '.join(shared)} being the tensor of another input"
        findings.append(outcome([given], words))
    if on_other_data:
        findings.append(outcome(other_data(eager.arguments), "other data"))

    def first_taken(changes: Sequence[Change]) -> Finding:
        for words, sizes in changes:
            finding = outcome(eager.resized(sizes), words)
            if finding.code == Found.SAME_BITS.code:
                break
        return finding

    together, one_by_one = other_sizes(fakes)
    padded, is_same = with_padding(eager.arguments), False
    if padded is not None and (at_once := together or (one_by_one[0] if len(one_by_one) == 1 else [])):
        words, sizes = at_once[0]
        ways = (with_padding(eager.arguments, values) or values for values in eager.resized(sizes))
        both = outcome(ways, f"{words}, with padded masks")
        if is_same := both.code == Found.SAME_BITS.code:
            findings.append(both)
    if padded is not None and not is_same:
        findings.append(outcome([padded], "padded masks"))
    if together and not is_same:
        findings.append(first_taken(together))
        is_same = findings[-1].code == Found.SAME_BITS.code
    if not is_same:  # the model may take other sizes one by one
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


def _require_no_difference(difference: str, words: str) -> None:
    if difference:
        raise DifferenceError(
            f"The recorded graph does not compute what the model computes. On {words}: {difference}"
        )


def _outcome(
    eager: EagerReference, traced: GraphModule, ways: Iterable[Mapping[str, Any]], words: str
) -> Finding:
    """Return the result of a comparison on the first of several inputs that both take."""
    left_out = None
    for values in ways:
        try:
            _require_no_difference(eager.difference(traced, values), words)
        except EagerError as error:
            left_out = left_out or Found.MODEL_RAISES(words, error=error)
        except GraphRejectsInputsError as error:
            left_out = left_out or Found.GRAPH_REFUSES(words, error=error)
        else:
            return Found.SAME_BITS(f"{words}, large products shortened" if eager.is_short else words)
    return left_out or Found.NO_SUCH_INPUTS(words)


_SMALL = 33, 40, 64, 96, 128
"""Sizes that take little time to compare at, where the given ones are large."""

Change: TypeAlias = tuple[str, dict[Size, int]]
"""Other sizes to compare at, and words for them."""


def sizes_at(fakes: FakeInputs, values: Mapping[sympy.Symbol, int]) -> dict[Size, int]:
    """Return the sizes that inputs have if symbols take other values than in the recorded run."""
    values = fakes.free_symbols() | dict(values)
    sizes = {size: fakes.expression(size).subs(values) for size in fakes.symbols}
    # A size may have turned out to be that of something which depends on data.
    return {size: int(value) if value.is_number else fakes.recorded[size] for size, value in sizes.items()}


def other_sizes(fakes: FakeInputs) -> tuple[list[Change], list[list[Change]]]:
    """Return changes of all sizes at once, the smallest first, and the same for each size alone.

    Sizes that were equal in the recorded run change together, as those of a text and of its mask must.
    """
    symbols, is_allowed = fakes.free_symbols(), _allowed(fakes)
    alone: list[list[dict[sympy.Symbol, int]]] = []
    for size in sorted(set(symbols.values())):
        equal = [symbol for symbol in symbols if symbols[symbol] == size]
        # Two sizes that differ must differ here as well, so that one in place of the other is seen.
        taken = {other for found in alone for other in found[0].values()}
        smaller = (small for small in _SMALL if 2 * small <= size and small not in taken)
        near = (other for other in (size + 1, size - 1, size * 2, size // 2, size + 2) if other > 1)
        ways = ((dict.fromkeys(equal, other) for other in others) for others in (smaller, near))
        if found := [values for way in ways if (values := next(filter(is_allowed, way), None))]:
            alone.append(found)
    at_once = [_merged(found[0] for found in alone), _merged(found[-1] for found in alone)]
    together = [values for values in at_once if len(alone) > 1 and is_allowed(values)]
    if at_once[0] == at_once[1]:
        del together[1:]
    return [_named(fakes, values) for values in together], [
        [_named(fakes, values) for values in found] for found in alone
    ]


def small_sizes(fakes: FakeInputs) -> dict[Size, int]:
    """Return sizes as small as the recorded run's conditions allow, unequal where those of the run are."""
    symbols = fakes.free_symbols()
    smallest = {size: min(size, least) for least, size in enumerate(sorted(set(symbols.values())), 2)}
    values = {symbol: smallest[size] for symbol, size in symbols.items()}
    return sizes_at(fakes, values if _allowed(fakes)(values) else {})


def _allowed(fakes: FakeInputs) -> Callable[[dict[sympy.Symbol, int]], bool]:
    """Return a function that tells whether the recorded run's conditions hold where symbols change."""
    symbols = fakes.free_symbols()
    replace = fakes.shape_env.replace
    conditions = [guard.expr for guard in fakes.shape_env.guards]
    guards = [each.subs({symbol: replace(symbol) for symbol in each.free_symbols}) for each in conditions]
    return lambda values: all(holds(guard, symbols | values) for guard in guards)


def _merged(changes: Iterable[Mapping[sympy.Symbol, int]]) -> dict[sympy.Symbol, int]:
    return {symbol: size for values in changes for symbol, size in values.items()}


def larger_batch(fakes: FakeInputs) -> dict[Size, int]:
    """Return the first dimensions of all inputs for one more item in a batch.

    An input may have several rows for each item, as the patches of images next to a text.
    """
    rows = {size: number for size, number in fakes.given.items() if size[-1] == 0}
    batch = math.gcd(*rows.values())
    return {size: number // batch * (batch + 1) for size, number in rows.items()} if batch else {}


def _named(fakes: FakeInputs, values: Mapping[sympy.Symbol, int]) -> Change:
    first: dict[int, Size] = {}
    for size in fakes.symbols:
        if (expression := fakes.expression(size)) in values:
            first.setdefault(values[expression], size)
    return ", ".join(f"{name_of_size(size)} = {new}" for new, size in first.items()), sizes_at(fakes, values)
