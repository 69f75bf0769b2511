"""The names of nodes in the stages of a compile.

Names tell nodes of two stages apart everywhere in fxlab. So the last node that a node of Dynamo's graph has
become has its name, and a replacement is named after the pass and the match: excluding one match renames no
other node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Graph

from fxlab.compiler.recording.snapshot import Made


class Names:
    """The names of nodes: of Dynamo's graph as it has them, of others unless they are taken.

    A node that computes what a node of Dynamo's graph does has its name, so that all stages can be compared
    by names.
    """

    def __init__(self) -> None:
        self._taken = Graph()
        self._known: dict[tuple[Any, ...], str] = {}

    def of(self, dialect: str, name: str, made: Mapping[str, Made]) -> str:
        """Return the name of the node that the compiler calls so.

        What replaces a match has the name that it has in every compile, in whatever order matches are found.
        """
        key: tuple[Any, ...] = (dialect, name)
        if name in made:
            key = (made[name].pass_, self.of(dialect, made[name].anchor, made), made[name].place)
        return self._known.get(key) or self._give(key, name)

    def give(self, dialect: str, name: str, wish: str) -> str:
        """Give a node a name like another one; returns the one that was free."""
        return self._give((dialect, name), wish)

    def share(self, dialect: str, name: str, known: str) -> None:
        """Give a node the name of another, for which it stands."""
        self._known[dialect, name] = known

    def _give(self, key: tuple[Any, ...], wish: str) -> str:
        free = self._taken.create_node("placeholder", wish, name=wish).name
        self._known[key] = free
        return free
