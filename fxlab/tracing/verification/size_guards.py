"""Guards on the sizes of inputs that a trace assumes: found by comparing, checked by the graph, reported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import sympy
from torch.fx import GraphModule

from fxlab.tracing.bound_inputs import Size, name_of_size, resized
from fxlab.tracing.recording.guards import Conditions
from fxlab.tracing.report import Finding, Found, Obstacle
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import condition_text, excludes_one_only, holds
from fxlab.tracing.verification.compare_with_eager import larger_batch, sizes_at, small_sizes
from fxlab.tracing.verification.eager import EagerError, EagerReference, GraphRejectsInputsError, varied
from fxlab.values.nested import REFUSAL

_MOST_SIZES = 4
"""How many times as large an input may get."""


def unsafe_assumptions(
    traced: GraphModule, fakes: FakeInputs, eager: EagerReference | None, checked: list[Any]
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
        if _is_same(traced, fakes, eager, sizes) is False:
            found.append(min(broken, key=_generality) if equality is None else equality)
    return found


def _is_same(
    traced: GraphModule, fakes: FakeInputs, eager: EagerReference, sizes: Mapping[Size, int]
) -> bool | None:
    """Tell whether a graph computes the same as the model at other sizes; ``None`` if not both take them.

    All others are as small as they may be, which takes less time, or else as recorded.
    """
    others = [{**small_sizes(fakes), **sizes}, {**fakes.recorded, **sizes}]
    for all_sizes in others[others[0] == others[1] :]:
        with suppress(EagerError, GraphRejectsInputsError):
            twin, twin_of_trace = eager.varied(traced)
            return not twin.difference(twin_of_trace, varied(resized(eager.arguments, all_sizes)))
    return None


def wrong_at_one(
    fixed: Collection[Size], traced: GraphModule, fakes: FakeInputs, eager: EagerReference | None
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
        if _is_same(traced, fakes, eager, dict.fromkeys(sizes, 1)) is False:
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
    """Yield sizes to try: together with those that each was found to equal, and alone, with that equality."""
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


def guard_sizes(
    conditions: Conditions, traced: GraphModule, fakes: FakeInputs, eager: EagerReference | None
) -> list[Finding]:
    """Make a graph refuse inputs of sizes that it was not traced for, and report its traced sizes.

    The model's own Python may have branched on a size; the graph holds the branch that was taken. Conditions
    that torch decided on need a guard only where the graph goes wrong without: mostly its operators raise.

    ``conditions``: adds nodes that check sizes to the graph. ``traced``: the graph module made of it.
    ``fakes``: inputs of the run. ``eager``: the model, to find the sizes it takes; ``None``: not to be run.
    """
    if not fakes.symbols:
        conditions.require_shapes()
        return [Found.FIXED_SIZE(name_of_size(size), size=n) for size, n in fakes.given.items()]
    words = partial(condition_text, names=fakes.shape_env.names)
    branches = fakes.branches
    for condition, where in branches:
        if not _holds_anyway(condition, traced, fakes, eager):
            conditions.require_sizes(condition, f"{REFUSAL} {words(condition)} (decided at {where})")
    assumed = unsafe_assumptions(traced, fakes, eager, [condition for condition, _ in branches])
    for condition in assumed:
        if not holds(condition, {symbol: fakes.given[size] for size, symbol in fakes.symbols.items()}):
            raise Obstacle.WOULD_BE_REFUSED(condition=words(condition))
        conditions.require_sizes(condition, f"{REFUSAL} {words(condition)} only")
    decided = {condition.lhs for condition, _ in branches if _gives_a_number(condition)}
    fixed = [size for size in fakes.given if isinstance(fakes.expression(size), sympy.Integer)]
    needless = _accepted_otherwise([size for size in fixed if size not in fakes.given_up], fakes, eager)
    # Whether the model takes other sizes cannot be told for sure without data, nor where data decides.
    can_tell = eager is not None and eager.has_data and not fakes.has_data
    broadcast = wrong_at_one(fixed, traced, fakes, eager)
    for size in fixed:
        # Of a size that was never a symbol no operator of the run has asked anything.
        is_needless = size in needless or size in fakes.given_up
        is_unasked = not can_tell or size not in fakes.symbols
        # Operators raise for other sizes, but for those that one is broadcast to.
        may_be_broadcast = fakes.given[size] == 1 or size in broadcast
        if (is_needless or is_unasked or may_be_broadcast) and fakes.symbols.get(size) not in decided:
            conditions.require_size(size, fakes.given[size])
    return [
        *(Found.BRANCH_ON_SIZE(words(condition), where) for condition, where in branches),
        *(Found.SHAPES_OF_BRANCH(words(condition)) for condition in assumed),
        *(_finding(size, fakes, needless if eager else ()) for size in fakes.given),
    ]


def _finding(size: Size, fakes: FakeInputs, needless: Collection[Size]) -> Finding:
    expression, name = fakes.expression(size), name_of_size(size)
    if isinstance(expression, sympy.Integer):
        if size in needless:
            return Found.NEEDLESSLY_FIXED_SIZE(name, size=expression)
        if size in fakes.narrow:
            return Found.NARROW_SIZE(name, size=expression)
        return (Found.COSTLY_SIZE if size in fakes.given_up else Found.FIXED_SIZE)(name, size=expression)
    same = next(other for other in fakes.symbols if fakes.expression(other) == expression)
    return Found.FOLLOWED_SIZE(name) if same == size else Found.SAME_SIZE(name, other=name_of_size(same))


def _gives_a_number(condition: Any) -> bool:
    """Tell whether a condition leaves one value for a size."""
    return isinstance(condition, sympy.Eq) and condition.lhs.is_Symbol and condition.rhs.is_Integer


def _holds_anyway(
    condition: Any, traced: GraphModule, fakes: FakeInputs, eager: EagerReference | None
) -> bool:
    """Tell whether a condition excludes a size of one only, and the graph computes the same for that."""
    if eager is None or not eager.has_data or not excludes_one_only(condition):
        return False
    free = fakes.shape_env.replace(*condition.free_symbols)
    if not isinstance(free, sympy.Symbol):
        return False
    return _is_same(traced, fakes, eager, sizes_at(fakes, {free: 1})) is True


def _accepted_otherwise(fixed: list[Size], fakes: FakeInputs, eager: EagerReference | None) -> list[Size]:
    """Return the fixed sizes that the model takes other values for."""
    if eager is None:
        return []
    found: set[Size] = set()
    for given in {fakes.given[size] for size in fixed}:
        # Sizes that agree may have to change together, as batch sizes do.
        together = [size for size in fixed if fakes.given[size] == given]
        # Some models take even sizes only, or smaller ones; a size of one is broadcast.
        others = [given + 1, 2 * given or 2, *((given // 2,) if given > 3 else ())]
        if any(eager.accepts(dict.fromkeys(together, other)) for other in others):
            found.update(together)
        elif len(together) > 1:
            found.update(s for s in together if any(eager.accepts({s: other}) for other in others))
    larger = larger_batch(fakes)
    if larger.keys() & set(fixed) - found and eager.accepts(larger):
        found.update(larger)
    return [size for size in fixed if size in found]
