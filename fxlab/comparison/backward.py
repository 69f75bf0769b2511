"""The backward pass of two models, for ``compare``: gradients that differ, and the value where it begins."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.fx import Node

from fxlab.comparison.weights import Weight
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.fingerprint import TOLERANCE, Fingerprint, Found
from fxlab.validation.alignment.side import Side
from fxlab.validation.verdicts.gradients import ValueGradients, value_gradients_in_float64
from fxlab.validation.verdicts.judgement import Judgement, Status
from fxlab.values.row_digests import row_digests

_ROUNDINGS = 4
"""How much farther than values the rounding of weights moves their gradients."""


@dataclass(frozen=True)
class GradientComparison:
    """The gradients of two models, compared by their values in float64."""

    judgements: dict[str, Judgement]
    """Of inputs and parameters that both models have, by the names of the reference."""
    parted: list[Node]
    """The first values of the candidate, on the way back, whose gradients the reference does not have.

    Values computed from them have gradients that the reference has.
    """


def backward_of(alignment: Alignment, weights: Collection[Weight]) -> GradientComparison:
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
        return GradientComparison(judgements, [])
    return GradientComparison(judgements, _parted(alignment.transformed, theirs, ours, tolerance))


def _joined_gradient(
    weight: Weight, alignment: Alignment, gradients: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """Return the gradient that a merged weight, or a part of one, has to have by those of the reference.

    Its rows, or columns, are found among those of the reference; ``None`` if one is there twice, or nowhere.
    """
    sides = alignment.transformed, alignment.original
    held, theirs = (dict(side.module.named_parameters(remove_duplicate=False)) for side in sides)
    own = held.get(weight.candidate)
    if own is None or any(name not in theirs or name not in gradients for name in weight.reference):
        return None
    turns = (False, True) if own.dim() > 1 else (False,)
    for is_turned, are_turned in itertools.product(turns, turns):
        of_reference = [_rows(theirs[name], are_turned) for name in weight.reference]
        digests = [digest for rows in of_reference for digest in row_digests(rows)]
        places = {digest: place for place, digest in enumerate(digests)}
        found = [places.get(digest, -1) for digest in row_digests(_rows(own, is_turned))]
        if len(places) == len(digests) and min(found, default=-1) >= 0:
            joined = torch.cat([_rows(gradients[name], are_turned) for name in weight.reference])[found]
            return joined.transpose(0, 1) if is_turned else joined
    return None


def _rows(tensor: torch.Tensor, turn: bool) -> torch.Tensor:
    return tensor.detach().transpose(0, 1).contiguous() if turn else tensor.detach()


def _judged(
    alignment: Alignment,
    ours: ValueGradients,
    theirs: ValueGradients,
    weights: Collection[Weight],
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
        yield other, _beside(mine, its, tolerance)
    for weight in weights:
        its = theirs.leaves.get(weight.candidate)
        if its is not None and weight.status in ("merged", "part"):
            joined = _joined_gradient(weight, alignment, ours.leaves)
            if joined is not None:
                name = f"{', '.join(weight.reference)} ({weight.status} in {weight.candidate})"
                yield name, _beside(joined, its, tolerance)


def _beside(mine: torch.Tensor, its: torch.Tensor, tolerance: float) -> Judgement:
    apart = Fingerprint.of(its).distance(Fingerprint.of(mine))
    status = Status.WITHIN_ROUNDING if apart <= tolerance else Status.DIFFERENT
    reason = f"the gradients are {apart:.2g} apart in float64, relative to the largest"
    return Judgement(status, reason, its.numel(), compared=its.numel())


def _counterparts(alignment: Alignment, weights: Collection[Weight]) -> dict[str, str]:
    """Return inputs and parameters of the candidate, and their names in the reference."""
    names = {weight.candidate: weight.reference[0] for weight in weights if weight.is_whole}
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
    return _first_backward(side, known, wrong)


def _first_backward(side: Side, known: Collection[Node], wrong: Collection[Node]) -> list[Node]:
    """Return the first nodes on the way back whose gradients are wrong and are not right again later."""
    right_again: set[Node] = set()
    for node in side.module.graph.nodes:
        inputs = node.all_input_nodes
        if node in wrong and any(each in known or each in right_again for each in inputs):
            right_again.add(node)
    computed = {node for node in wrong if node.op != "get_attr"}  # weights may be merged
    lost = computed - right_again or computed
    backward = reversed(side.module.graph.nodes)
    return [node for node in backward if node in lost and lost.isdisjoint(node.users)]
