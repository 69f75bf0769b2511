"""The difference of two texts line by line, in linear time.

``difflib`` searches the whole rest for each equal stretch, which is quadratic if every second line has
changed. Nearly all lines of generated code occur once, as each names its node, so lines that are unique in
both texts are matched first, in the longest sequence that keeps their order (patience sorting), then equal
lines next to them.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal, NamedTuple

from fxlab.transformations.journal.name_order import longest_rise

Kind = Literal["same", "changed", "removed", "added"]


class Run(NamedTuple):
    """Consecutive lines with the same change."""

    kind: Kind
    """``changed`` lines are pairs: each stands for the one at its place in the other text."""
    length: int

    @property
    def steps(self) -> tuple[int, int]:
        """The number of its lines in the text before, and in that after."""
        return (0 if self.kind == "added" else self.length, 0 if self.kind == "removed" else self.length)


def line_runs(
    before: Sequence[str], after: Sequence[str], names: tuple[Sequence[Hashable], Sequence[Hashable]]
) -> list[Run]:
    """Return the change of each line of both texts; lines with equal ``names`` count as changed."""
    runs: list[Run] = []
    everywhere = range(len(before)), range(len(after))
    kept = _with_neighbours(before, after, _matched(before, after, *everywhere))
    i = j = 0
    for next_i, next_j in [*kept, (len(before), len(after))]:
        here = range(i, next_i), range(j, next_j)
        pairs = _matched(*names, *here)
        for k, m in [*pairs, (next_i, next_j)]:
            _add(runs, "removed", k - i)
            _add(runs, "added", m - j)
            if (k, m) != (next_i, next_j):
                _add(runs, "same" if before[k] == after[m] else "changed", 1)
            i, j = k + 1, m + 1
        i, j = next_i, next_j
        if i < len(before):
            _add(runs, "same", 1)
            i, j = i + 1, j + 1
    return runs


def in_order(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return places of equal values that are unique in both sequences, as many as keep their order."""
    return _matched(before, after, range(len(before)), range(len(after)))


def _matched(
    before: Sequence[Hashable], after: Sequence[Hashable], within: range, within_after: range
) -> list[tuple[int, int]]:
    """Return places of equal values that are unique in both, as many as keep their order."""
    if not within or not within_after:
        return []
    old, new = _unique(before, within), _unique(after, within_after)
    pairs = sorted((i, new[value]) for value, i in old.items() if value in new)
    kept = longest_rise([j for _, j in pairs])
    return [pair for place, pair in enumerate(pairs) if place in kept]


def _unique(values: Sequence[Hashable], within: range) -> dict[Hashable, int]:
    counts = Counter(values[i] for i in within)
    return {values[i]: i for i in within if values[i] and counts[values[i]] == 1}


def _with_neighbours(
    before: Sequence[str], after: Sequence[str], anchors: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield matched places, and between them those of adjoining equal lines."""
    i = j = 0
    for next_i, next_j in [*anchors, (len(before), len(after))]:
        while i < next_i and j < next_j and before[i] == after[j]:
            yield i, j
            i, j = i + 1, j + 1
        back = 0
        while (
            next_i - back > i and next_j - back > j and before[next_i - back - 1] == after[next_j - back - 1]
        ):
            back += 1
        yield from ((next_i - k, next_j - k) for k in range(back, 0, -1))
        if (next_i, next_j) != (len(before), len(after)):
            yield next_i, next_j
        i, j = next_i + 1, next_j + 1


def _add(runs: list[Run], kind: Kind, count: int) -> None:
    if count <= 0:
        return
    if runs and runs[-1].kind == kind:
        count += runs.pop().length
    runs.append(Run(kind, count))
