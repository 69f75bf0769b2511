"""The difference of two generated codes line by line, in linear time, for ``code_diff``.

``difflib`` searches the whole rest for each equal stretch, which is quadratic if every second line has
changed. A line is known by the nodes that it stands for, so lines are matched by these, in the longest
sequence that keeps their order.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from fxlab.transformations.journal.name_order import longest_rise

H = TypeVar("H", bound=Hashable)
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
    """Return the change of each line of both texts; a line without ``names`` is known by its text."""
    keys = (
        numbered(own or line for own, line in zip(known, lines, strict=True))
        for known, lines in zip(names, (before, after), strict=True)
    )
    runs: list[Run] = []
    i = j = 0
    for k, m in [*in_order(*keys), (len(before), len(after))]:
        _add(runs, "removed", k - i)
        _add(runs, "added", m - j)
        if k < len(before):
            _add(runs, "same" if before[k] == after[m] else "changed", 1)
        i, j = k + 1, m + 1
    return runs


def numbered(values: Iterable[H]) -> list[tuple[H, int]]:
    """Return each value with its number among equal ones, so that each pair is unique."""
    counts = Counter[H]()
    found = []
    for value in values:
        found.append((value, counts[value]))
        counts[value] += 1
    return found


def in_order(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return places of equal values of two sequences of unique ones, as many as keep their order."""
    there = {value: place for place, value in enumerate(after)}
    pairs = [(place, there[value]) for place, value in enumerate(before) if value in there]
    kept = longest_rise([place for _, place in pairs])
    return [pair for number, pair in enumerate(pairs) if number in kept]


def _add(runs: list[Run], kind: Kind, count: int) -> None:
    if count <= 0:
        return
    if runs and runs[-1].kind == kind:
        count += runs.pop().length
    runs.append(Run(kind, count))
