"""The backward pass of two models: gradients that differ, and the value at which that begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch.fx import Node

from fxlab.comparison.weights import SAME, Weight
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.fingerprint import TOLERANCE, Fingerprint, Found
from fxlab.validation.alignment.side import Side
from fxlab.validation.verdicts.gradients import ValueGradients, value_gradients_in_float64
from fxlab.validation.verdicts.judgement import Judgement, Status

_ROUNDINGS = 4
"""How much farther than values the rounding of weights moves their gradients."""


@dataclass(frozen=True)
class Backward:
    """The gradients of two models, compared by their values in float64."""

    judgements: dict[str, Judgement]
    """Of inputs and parameters that both models have, by the names of the reference."""
    parted: list[Node]
    """The first values of the candidate, on the way back, whose gradients the reference does not have.

    What is computed from them has gradients that the reference has.
    """


def backward_of(alignment: Alignment, weights: Iterable[Weight]) -> Backward:
    """Compare the gradients of the outputs that were compared, each times the same random numbers."""
    ours, theirs = (
        value_gradients_in_float64(side.module, side.inputs, [pair[place] for pair in alignment.outputs])
        for place, side in enumerate((alignment.original, alignment.transformed))
    )
    sides = alignment.original, alignment.transformed
    moved = max((t for side in sides for t in side.tolerance.values()), default=0.0)
    tolerance = max(_ROUNDINGS * moved, TOLERANCE)
    judgements = dict(_judged(alignment, ours, theirs, weights, tolerance))
    if all(judgement.status is not Status.DIFFERENT for judgement in judgements.values()):
        return Backward(judgements, [])
    return Backward(judgements, _parted(alignment.transformed, theirs, ours, tolerance))


def _judged(
    alignment: Alignment,
    ours: ValueGradients,
    theirs: ValueGradients,
    weights: Iterable[Weight],
    tolerance: float,
) -> Iterator[tuple[str, Judgement]]:
    for name, other in _counterparts(alignment, weights).items():
        mine, its = ours.leaves.get(other), theirs.leaves.get(name)
        if mine is None and its is None:
            continue
        if mine is None or its is None:
            which = "candidate" if mine is None else "reference"
            yield other, Judgement(Status.DIFFERENT, f"only the {which} has a gradient here", 0)
            continue
        apart = Fingerprint.of(its).distance(Fingerprint.of(mine))
        agrees = apart <= tolerance
        status = Status.WITHIN_ROUNDING if agrees else Status.DIFFERENT
        reason = f"the gradients are {apart:.2g} apart in float64, relative to the largest"
        yield other, Judgement(status, reason, its.numel(), compared=its.numel())


def _counterparts(alignment: Alignment, weights: Iterable[Weight]) -> dict[str, str]:
    """Return inputs and parameters of the candidate, and what they are called in the reference."""
    names = {
        weight.candidate: weight.reference[0]
        for weight in weights
        if weight.status in SAME and len(weight.reference) == 1 and weight.status != "part"
    }
    sides = alignment.transformed, alignment.original
    placeholders = (side.module.graph.find_nodes(op="placeholder") for side in sides)
    inputs = {str(a.target): str(b.target) for a, b in zip(*placeholders, strict=False)}
    return inputs | names


def _parted(side: Side, gradients: ValueGradients, others: ValueGradients, tolerance: float) -> list[Node]:
    """Return the first nodes on the way back whose gradients the other model does not have."""
    found = Found()
    for place, values in enumerate(others.values.values()):
        for gradient in values.values():
            found.add(Fingerprint.of(gradient), place)
    known = {
        node
        for node, values in gradients.values.items()
        if all(any(found.like(Fingerprint.of(gradient), tolerance)) for gradient in values.values())
    }
    wrong = {node for node in gradients.values if node not in known}
    return side.first_backward(known, wrong)
