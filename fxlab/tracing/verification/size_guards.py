"""Guards on the sizes of inputs: checked by the graph, and reported."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import sympy
from torch.fx import GraphModule

from fxlab.tracing.bound_inputs import Size, name_of_size, resized
from fxlab.tracing.findings import Finding, Found
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.guards import Conditions
from fxlab.tracing.report import REFUSAL
from fxlab.tracing.shapes.condition_text import condition_text
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.symbolic_sizes import excludes_one_only, holds
from fxlab.tracing.verification.assumptions import unsafe_assumptions, wrong_at_one
from fxlab.tracing.verification.distinct_values import varied
from fxlab.tracing.verification.eager import Eager, EagerError, RefusalError
from fxlab.tracing.verification.other_sizes import larger_batch, sizes_at


def guard_sizes(
    conditions: Conditions, traced: GraphModule, fakes: FakeInputs, eager: Eager | None
) -> list[Finding]:
    """Make a graph refuse inputs of sizes that it was not traced for, and report what it was traced for.

    The model's own Python may have branched on a size; the graph holds the branch that was taken. Conditions
    that torch decided on need a guard only where the graph goes wrong without: mostly its operators raise.

    ``conditions``: adds nodes that check sizes to the graph. ``traced``: the graph module made of it.
    ``fakes``: the inputs of the run. ``eager``: the model, to find out which sizes it takes; ``None`` if it
    is not to be run.
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


def _holds_anyway(condition: Any, traced: GraphModule, fakes: FakeInputs, eager: Eager | None) -> bool:
    """Tell whether a condition excludes a size of one only, and the graph computes the same for that."""
    if eager is None or not eager.has_data or not excludes_one_only(condition):
        return False
    free = fakes.shape_env.replace(*condition.free_symbols)
    if not isinstance(free, sympy.Symbol):
        return False
    single = varied(resized(eager.arguments, sizes_at(fakes, {free: 1})))
    try:
        return not eager.varied.difference(traced, single)
    except (EagerError, RefusalError):
        return False


def _accepted_otherwise(fixed: list[Size], fakes: FakeInputs, eager: Eager | None) -> list[Size]:
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
