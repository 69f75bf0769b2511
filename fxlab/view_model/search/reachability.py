"""Reachability in a graph, in linear time."""

from __future__ import annotations

from collections.abc import Sequence


def reachable(neighbours: Sequence[Sequence[int]], start: int) -> set[int]:
    """Return what is reached from a position, itself left out unless a cycle leads back to it.

    Parameters
    ----------
    neighbours
        For each position, those one step away.
    start
        Where to begin.

    Examples
    --------
    >>> sorted(reachable([[1], [2, 3], [], [2]], 1))
    [2, 3]
    """
    found: set[int] = set()
    pending = [start]
    while pending:
        fresh = [position for position in neighbours[pending.pop()] if position not in found]
        found.update(fresh)
        pending += fresh
    return found
