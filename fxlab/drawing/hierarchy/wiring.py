"""Edges between drawn nodes, as numbers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import fx

_Integers = npt.NDArray[np.int64]


class Wiring:
    """The reads among numbered nodes, each asked for once: a good part of arranging 100,000 nodes."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        self._number = number = {node: place for place, node in enumerate(nodes)}
        inputs = [node.all_input_nodes for node in nodes]
        sources = [number.get(source, -1) for read in inputs for source in read]
        self._sources: _Integers = np.array(sources, dtype=np.int64)
        """What each node reads, one after the other; -1 for a node that is not in the list."""
        self._starts: _Integers = np.cumsum([0, *map(len, inputs)])
        """Where the reads of each node start."""

    def inside(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """Return something equal for stretches of the list that are wired alike within themselves."""
        starts = self._starts[start : stop + 1]
        sources = self._sources[starts[0] : starts[-1]]
        is_inside = (start <= sources) & (sources < stop)
        return (starts - starts[0]).tobytes(), np.where(is_inside, sources - start, -1).tobytes()

    def edges(self, nodes: Sequence[fx.Node]) -> tuple[_Integers, _Integers]:
        """Return sources and targets of the reads, where the same nodes are in another order."""
        order = np.fromiter((self._number[node] for node in nodes), dtype=np.int64, count=len(nodes))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        drawn = self._sources >= 0
        sources = place[self._sources[drawn]]
        targets = np.repeat(place, np.diff(self._starts))[drawn]
        by_target = np.argsort(targets, kind="stable")
        return sources[by_target], targets[by_target]
