"""The random numbers that two models draw from one seed: compared for a verdict, and equal draws for both."""

from dataclasses import dataclass

from fxlab.validation.outputs.call_differences import other_random_numbers
from fxlab.validation.verdicts.draws import Draw, first_difference, replayable, same_numbers
from fxlab.validation.verdicts.runs import Runs
from fxlab.values.tensors import same_bits

_OF_ITS_OWN = (
    "generated code draws random numbers by a generator of its own, which others cannot be given; compile "
    "with the option fallback_random=True to have it judged"
)
_IN_ANOTHER_WAY = (
    "Inductor draws random numbers in another way than torch, so that they could not be compared; compile "
    "with the option fallback_random=True to have them judged"
)
_IN_ANOTHER_NUMBER = (
    "generated code draws more or fewer random numbers than the original, or in another order: its generator "
    "ends in another state"
)
_INSIDE = (
    "draws random numbers inside of an operator of its own, so that they could not be compared (the option "
    "fallback_random=True of torch.compile lets it call torch's)"
)


@dataclass(frozen=True)
class RandomNumbers:
    """The result of :func:`random_numbers`."""

    reason: str = ""
    """Why the two differ in their draws, in words; empty if they do not."""
    replayed: list[Draw] | None = None
    """The numbers that the transformed model is to be given in float64."""
    given: list[Draw] | None = None
    """The numbers that the transformed model is to be given, where it draws others in the same way."""
    note: str = ""
    """That they were given, in words."""
    why_not_judged: str = ""
    """Why nothing can be said of two models that draw in ways that cannot be compared."""


def random_numbers(original: Runs, transformed: Runs) -> RandomNumbers:
    """Compare the random numbers that two models draw from the same seed.

    A model that draws in the same way, in the same order and shapes and from the same distributions, may get
    other numbers nevertheless, in other dtypes or another order of memory. Then it gets those of the
    original, so that the rest can be compared.
    """
    ours, theirs = original.observed.record, transformed.observed.record
    if ours.draws != theirs.draws:  # by another thread, perhaps: generators are all threads'
        (original if ours.draws else transformed).observe_again()
        ours, theirs = original.observed.record, transformed.observed.record
    if not ours.draws and not theirs.draws:
        return RandomNumbers()
    if ours.draws != theirs.draws:
        where = _where(original if ours.draws else transformed)
        return RandomNumbers(other_random_numbers(ours, theirs) + where)
    alike = ours.generators.are(theirs.generators)
    if alike and _give_the_same(original, transformed):
        return RandomNumbers()
    as_torch = original.draws_as_torch and transformed.draws_as_torch
    if original.is_generated or transformed.is_generated:
        if not as_torch or not (alike or original.has_own_code or transformed.has_own_code):
            return RandomNumbers(why_not_judged=_OF_ITS_OWN)
        return RandomNumbers(note="" if alike else _IN_ANOTHER_NUMBER)
    try:
        first, second = original.draws, transformed.draws
    except Exception:  # the nodes of one of them do not run one by one
        return RandomNumbers(other_random_numbers(ours, theirs))
    if not alike and (unseen := [*first.unseen, *second.unseen]):
        return RandomNumbers(why_not_judged=f"node {unseen[0]!r} {_INSIDE}")
    if why := first_difference(first.drawn, second.drawn):
        return RandomNumbers(why) if as_torch else RandomNumbers(why_not_judged=_IN_ANOTHER_WAY)
    has_seeds = first.has_seeds or second.has_seeds
    has_same = same_numbers(first.drawn, second.drawn) and not has_seeds
    replayed = replayable(first.drawn, second.drawn)
    if has_same or not ours.generators._replace(torch=theirs.generators.torch).are(theirs.generators):
        return RandomNumbers(other_random_numbers(ours, theirs), replayed)
    return RandomNumbers(
        given=replayed,
        note="it draws random numbers in the same way and gets others from the same seed: it was given those "
        "of the original",
    )


def _give_the_same(original: Runs, transformed: Runs) -> bool:
    ours, theirs = original.observed.returned, transformed.observed.returned
    return ours.keys() == theirs.keys() and all(same_bits(ours[path], theirs[path]) for path in ours)


def _where(runs: Runs) -> str:
    """Return in words where a model draws."""
    try:
        nodes = list(dict.fromkeys(draw.node for draw in runs.draws.drawn)) or runs.draws.unseen
    except Exception:  # its nodes do not run one by one
        nodes = []
    return f" (node {nodes[0]!r}{f' and {len(nodes) - 1} more' if len(nodes) > 1 else ''})" if nodes else ""
