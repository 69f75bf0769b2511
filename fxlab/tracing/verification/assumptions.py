"""Conditions on sizes that torch itself decided on while a model was recorded.

Mostly an operator raises where such a condition does not hold. But a size of one is broadcast, squeezed and
left out of strides, and a size that torch has found to be one is a plain number from then on. So the graph is
run where a condition does not hold, and checks it if it then computes something else than the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import sympy
from torch.fx import GraphModule

from fxlab.tracing.bound_inputs import Size, resized
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import holds
from fxlab.tracing.verification.distinct_values import varied
from fxlab.tracing.verification.eager import Eager, EagerError, RefusalError

_MOST_SIZES = 4
"""How many times as large an input may get."""


def unsafe_assumptions(
    traced: GraphModule, fakes: FakeInputs, eager: Eager | None, checked: list[Any]
) -> list[Any]:
    """Return the conditions without which a graph computes something else than the model.

    ``fakes``: the inputs of the run. ``eager``: the model; ``None`` if it is not to be run. ``checked``:
    conditions that the graph checks already.
    """
    assumed = _assumed(fakes)
    if eager is None or not eager.has_data or not assumed:
        return []
    recorded = {symbol: fakes.recorded[size] for size, symbol in fakes.symbols.items()}
    found: list[Any] = []
    for sizes, equality in _other_sizes(fakes):
        changed = {fakes.symbols[size]: number for size, number in sizes.items() if size in fakes.symbols}
        values = recorded | changed
        # The others hold as they did when the model was recorded.
        asked = (condition for condition in assumed if not condition.free_symbols.isdisjoint(changed))
        broken = [condition for condition in asked if not holds(condition, values)]
        # Beside an equality torch asks many times whether a size is one, mostly to no effect.
        if equality is None:
            broken = [condition for condition in broken if isinstance(condition, sympy.Eq)]
        if not broken or not all(holds(condition, values) for condition in (*checked, *found)):
            continue
        try:
            others = varied(resized(eager.arguments, fakes.recorded | dict(sizes)))
            is_same = not eager.varied.difference(traced, others)
        except (EagerError, RefusalError):
            continue
        if not is_same:
            found.append(min(broken, key=_generality) if equality is None else equality)
    return found


def wrong_at_one(
    fixed: Collection[Size], traced: GraphModule, fakes: FakeInputs, eager: Eager | None
) -> set[Size]:
    """Return the fixed sizes in place of which the model broadcasts one, and the graph goes wrong.

    ``fixed``: the sizes that are fixed.
    """
    larger = [size for size in fixed if fakes.given[size] > 1]
    if eager is None or not eager.has_data:
        return set()
    equal = [
        {size for size in larger if fakes.given[size] == number} for number in {*map(fakes.given.get, larger)}
    ]
    found: set[Size] = set()
    for sizes in (*equal, *({size} for together in equal if len(together) > 1 for size in together)):
        ones = resized(eager.arguments, fakes.recorded | dict.fromkeys(sizes, 1))
        with suppress(EagerError, RefusalError):
            if eager.varied.difference(traced, varied(ones)):
                found |= sizes
    return found


def _assumed(fakes: FakeInputs) -> list[Any]:
    """Return the conditions on sizes that torch, and not the model, has asked about."""
    known, held = set(fakes.symbols.values()), fakes.shape_env.held
    conditions = dict.fromkeys(guard.expr for guard in fakes.shape_env.guards)
    return [found for found in conditions if found not in held and found.free_symbols <= known]


def _generality(condition: Any) -> tuple[bool, int, int]:
    """Order conditions by how little they exclude besides: equalities first, then those of few symbols."""
    return not isinstance(condition, sympy.Eq), len(condition.free_symbols), condition.count_ops()


def _other_sizes(fakes: FakeInputs) -> Iterator[tuple[Mapping[Size, int], Any]]:
    """Yield sizes to try: together with all that each was found to equal, and alone, with that equality."""
    classes: dict[Any, list[Size]] = {}
    for size in fakes.symbols:
        expression = fakes.expression(size)
        if isinstance(expression, sympy.Symbol):
            classes.setdefault(expression, []).append(size)
    for sizes in classes.values():
        before = fakes.recorded[sizes[0]]
        for number in dict.fromkeys((1, before + 1, 2 * before, _MOST_SIZES * before)):
            if number != before:
                yield dict.fromkeys(sizes, number), None
        if len(sizes) > 1 and before > 1:
            for size, other in zip(sizes, (sizes[1], *sizes), strict=False):
                yield {size: 1}, sympy.Eq(fakes.symbols[size], fakes.symbols[other])
