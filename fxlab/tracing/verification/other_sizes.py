"""Choose other sizes of inputs, at which a trace is compared with its model as well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import sympy

from fxlab.tracing.bound_inputs import Size, name_of_size
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import holds

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
    symbols = fakes.free_symbols()
    guards = [_in_free_symbols(guard.expr, fakes) for guard in fakes.shape_env.guards]

    def is_allowed(values: dict[sympy.Symbol, int]) -> bool:
        return all(holds(guard, symbols | values) for guard in guards)

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


def _merged(changes: Iterable[Mapping[sympy.Symbol, int]]) -> dict[sympy.Symbol, int]:
    return {symbol: size for values in changes for symbol, size in values.items()}


def larger_batch(fakes: FakeInputs) -> dict[Size, int]:
    """Return the first dimensions of all inputs for one more item in a batch.

    An input may have several rows for each item, as the patches of images next to a text.
    """
    rows = {size: number for size, number in fakes.given.items() if size[-1] == 0}
    batch = math.gcd(*rows.values())
    return {size: number // batch * (batch + 1) for size, number in rows.items()} if batch else {}


def _in_free_symbols(condition: Any, fakes: FakeInputs) -> Any:
    return condition.subs({symbol: fakes.shape_env.replace(symbol) for symbol in condition.free_symbols})


def _named(fakes: FakeInputs, values: Mapping[sympy.Symbol, int]) -> Change:
    first: dict[int, Size] = {}
    for size in fakes.symbols:
        if (expression := fakes.expression(size)) in values:
            first.setdefault(values[expression], size)
    return ", ".join(f"{name_of_size(size)} = {new}" for new, size in first.items()), sizes_at(fakes, values)
