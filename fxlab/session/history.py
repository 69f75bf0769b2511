"""The choices made in a session, one after the other: the entries that undo and redo walk."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TypeAlias

Candidate: TypeAlias = tuple[str, ...]
"""A place that a transformation may change, by the names of its nodes."""

Stack: TypeAlias = tuple[tuple[str, tuple[Candidate, ...]], ...]
"""The names of the transformations that are on and the candidates that each excludes, lowest first."""


@dataclass(frozen=True)
class Switches:
    """An entry of the history: all choices of the user."""

    offered: tuple[str, ...] = ()
    """The names of the transformations on offer, lowest in the stack first."""
    on: frozenset[str] = frozenset()
    """The names of those that are on."""
    excluded: frozenset[tuple[str, Candidate]] = frozenset()
    """Names of transformations, and candidates that they exclude."""

    def without(self, name: str) -> Switches:
        """Return the same without a transformation."""
        offered = tuple(other for other in self.offered if other != name)
        excluded = frozenset(entry for entry in self.excluded if entry[0] != name)
        return replace(self, offered=offered, on=self.on - {name}, excluded=excluded)

    def excluded_from(self, name: str) -> tuple[Candidate, ...]:
        """Return the candidates that a transformation excludes."""
        return tuple(sorted(candidate for other, candidate in self.excluded if other == name))

    def stack(self, *, below: str | None = None) -> Stack:
        """Return the stack of passes that are on, or the part of it below a transformation."""
        names = itertools.takewhile(lambda name: name != below, self.offered)
        return tuple((name, self.excluded_from(name)) for name in names if name in self.on)


@dataclass(frozen=True)
class History:
    """All entries, and the present one; replaced as a whole, never changed."""

    entries: tuple[Switches, ...] = (Switches(),)
    position: int = 0

    @property
    def now(self) -> Switches:
        """The present entry."""
        return self.entries[self.position]

    @property
    def past(self) -> tuple[Switches, ...]:
        """The present entry and those that undo leads to."""
        return self.entries[: self.position + 1]

    def then(self, switches: Switches) -> History:
        """Return the history with one more entry; undone entries are forgotten."""
        return History((*self.past, switches), self.position + 1)

    def at(self, position: int) -> History:
        """Return the same history with another present entry."""
        return replace(self, position=position)
