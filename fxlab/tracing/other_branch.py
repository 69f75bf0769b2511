"""Branches on sizes that few inputs take, such as the given ones, and sizes that take the other branch.

A model may ask whether an image has the size that its table of positions was made for, or whether a size is
a multiple of a window and needs no padding. What it computes otherwise is mostly right for such a size as
well: interpolation to the size that there is, padding by nothing. So it is recorded on other sizes, and the
graph is kept if it gives the model's own bits for the given ones. It then holds for both branches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from fxlab.tracing.bound_inputs import Size
from fxlab.tracing.shapes.fake_inputs import FakeInputs, Region
from fxlab.tracing.shapes.symbolic_sizes import holds
from fxlab.tracing.torch_private import functions
from fxlab.tracing.verification.eager import Eager

_REMAINDERS = (functions.Mod, functions.PythonMod)
_STEPS = (32, 16, 8, 4, 2, 1, 64)
"""How much larger other sizes are."""
_MOST_TRIED = 3
_MOST_APART = 3
_LOOKED_AT = range(1, 65)
"""How much larger sizes are that show for how many a condition holds."""


@dataclass(frozen=True)
class OtherBranch:
    """Sizes that take another branch than the given ones.

    Attributes
    ----------
    stand_ins : Mapping of Size to int
        The sizes.
    alone : list of Mapping of Size to int
        The same, where only one of several is another than the given one.
    as_given : Region
        Where the model does what it does for the given sizes.
    also : list of Mapping of Size to int
        Further sizes for which it does, and which the model takes.
    """

    stand_ins: Mapping[Size, int]
    alone: Sequence[Mapping[Size, int]]
    as_given: Region
    also: Sequence[Mapping[Size, int]]

    @classmethod
    def of(
        cls, fakes: FakeInputs, required: Iterable[Any], others: Collection[Size], eager: Eager
    ) -> OtherBranch | None:
        """Return the other branch of what was recorded, ``None`` if that holds for most sizes.

        Parameters
        ----------
        fakes
            The inputs of the run.
        required
            Further conditions that the graph checks.
        others
            The fixed sizes that the model may take other values for.
        eager
            The model.
        """
        held, symbols = fakes.region()
        values = {symbol: fakes.recorded[size] for symbol, size in symbols.items()}
        fixed = {
            symbol
            for symbol, size in symbols.items()
            if fakes.given[size] == 1 or (fakes.expression(size).is_number and size not in others)
        }
        asked = [
            condition
            for condition in fakes.shape_env.held
            if condition.free_symbols <= symbols.keys() - fixed and _holds_for_few(condition, values)
        ]
        moved = _moved_sizes(fakes, {symbol for condition in asked for symbol in condition.free_symbols})
        stand_ins = _accepted(moved, asked, values, eager)
        if stand_ins is None:
            return None
        given = {size: fakes.given[size] for size in stand_ins}
        near = ({size: number + by for size, number in given.items()} for by in (1, -1))
        multiples = ({size: number * times for size, number in given.items()} for times in (2, 3))
        as_given, also = _held_at((*near, *multiples), sympy.And(held, *required), stand_ins, fakes, eager)
        apart: dict[Any, dict[Size, int]] = {}
        for size, number in stand_ins.items():
            expression, symbol = fakes.expression(size), fakes.symbols[size]
            apart.setdefault(symbol if expression.is_number else expression, {})[size] = number
        alone = [*apart.values()] if 1 < len(apart) <= _MOST_APART else []
        return cls(stand_ins, alone, (as_given, symbols), also)


def checked_region(
    fakes: FakeInputs, stand_ins: Mapping[Size, int], eager: Eager
) -> tuple[Region, Sequence[Mapping[Size, int]]]:
    """Return the sizes for which the model decides as it did in a run, and some of them to compare at.

    Parameters
    ----------
    fakes
        The inputs of the run.
    stand_ins
        The sizes of the run that are not the given ones.
    eager
        The model.
    """
    held, symbols = fakes.region()
    further = ({size: 2 * new - fakes.given[size] for size, new in stand_ins.items()},)
    region, points = _held_at(further, held, stand_ins, fakes, eager)
    return (region, symbols), [stand_ins, *points]


def _held_at(
    ways: Iterable[Mapping[Size, int]],
    held: Any,
    moved: Collection[Size],
    fakes: FakeInputs,
    eager: Eager,
) -> tuple[Any, Sequence[Mapping[Size, int]]]:
    """Return those of some sizes that meet a condition, and the condition; if none do, for recorded sizes."""
    values = {symbol: fakes.recorded[size] for size, symbol in fakes.symbols.items()}
    found = [
        sizes
        for sizes in ways
        if holds(held, values | {fakes.symbols[size]: new for size, new in sizes.items()})
        and eager.accepts(sizes)
    ]
    if not found:
        held &= sympy.And(*(sympy.Eq(fakes.symbols[size], fakes.recorded[size]) for size in moved))
    return held, found


def _holds_for_few(condition: Any, values: Mapping[sympy.Symbol, int]) -> bool:
    """Tell whether a condition asks for a number or a multiple, and holds for few larger sizes."""
    if not isinstance(condition, sympy.Eq) and not condition.has(*_REMAINDERS):
        return False
    found = (holds(condition, _larger(values, condition.free_symbols, by)) for by in _LOOKED_AT)
    return sum(found) < 3 / 4 * len(_LOOKED_AT)  # every second size has no remainder by two


def _larger(
    values: Mapping[sympy.Symbol, int], symbols: Iterable[sympy.Symbol], by: int
) -> dict[sympy.Symbol, int]:
    return {**values, **{symbol: values[symbol] + by for symbol in symbols}}


def _moved_sizes(fakes: FakeInputs, moved: set[sympy.Symbol]) -> dict[Size, sympy.Symbol]:
    """Return the sizes that some symbols stand for, or that have to be equal to these."""
    equal = {fakes.shape_env.replace(symbol) for symbol in moved}
    return {
        size: symbol
        for size, symbol in fakes.symbols.items()
        if symbol in moved or (fakes.expression(size) in equal and not fakes.expression(size).is_number)
    }


def _accepted(
    sizes: Mapping[Size, sympy.Symbol], few: list[Any], values: Mapping[sympy.Symbol, int], eager: Eager
) -> dict[Size, int] | None:
    """Return larger sizes that the model takes, for which as few of some conditions hold as may be."""

    def holding(by: int) -> int:
        return sum(holds(condition, _larger(values, sizes.values(), by)) for condition in few)

    counts = {by: holding(by) for by in _STEPS}
    steps = sorted((by for by in _STEPS if counts[by] < len(few)), key=counts.__getitem__)
    for by in steps[:_MOST_TRIED]:
        larger = {size: values[symbol] + by for size, symbol in sizes.items()}
        if eager.accepts(larger):
            return larger
    return None
