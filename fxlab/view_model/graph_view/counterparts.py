"""Counterparts of a node in another stage."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fxlab.validation.graphs.provenance import Provenance


class Counterparts:
    """Which nodes of two stages stand for one another.

    Parameters
    ----------
    before, after
        Two stages of a session.
    """

    def __init__(self, before: fx.GraphModule, after: fx.GraphModule) -> None:
        provenance = Provenance(before, after)
        self._names_before = {node.name for node in before.graph.nodes}
        self._before = {node.name: [n.name for n in provenance.of(node)] for node in after.graph.nodes}
        self._after: dict[str, list[str]] = {}
        for name, others in self._before.items():
            for other in others:
                self._after.setdefault(other, []).append(name)

    @property
    def renamed(self) -> dict[str, list[str]]:
        """What nodes of the stage after stand for, where that is not the node of the same name alone.

        Who knows these and the names of both stages knows the rest: a node that is not listed stands for the
        one of its name, or for nothing if there is none.
        """
        kept = {name: [name] if name in self._names_before else [] for name in self._before}
        return {name: others for name, others in self._before.items() if others != kept[name]}

    def of(self, names: Sequence[str], before: bool) -> list[str]:
        """Return what stands for nodes of one stage in the other, first what has kept its name.

        Parameters
        ----------
        names
            The names of the nodes.
        before
            Whether they are nodes of the stage before.
        """
        table, asked = self._after if before else self._before, set(names)
        found = dict.fromkeys(other for name in names for other in table.get(name, ()))
        return sorted(found, key=lambda name: name not in asked)
