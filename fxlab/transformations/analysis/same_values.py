"""Whether values are still the same at a later place of a graph."""

from collections.abc import Mapping

from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.aliasing_and_writes import Writes


def why_not_the_same(readers: Mapping[Node, Node], last: Node, writes: Writes) -> Refusal | None:
    """Return why values may have changed between those that read them and ``last``; ``None`` if not.

    Parameters
    ----------
    readers
        The first reader of each value.
    last
        The node that would read them instead.
    writes
        The writes of the graph.
    """
    for value, reader in readers.items():
        between = {"first": reader.name, "last": last.name}
        if not writes.same_state(reader, last):
            return Reason.MODE_CHANGES_IN_BETWEEN(**between)
        if writes.epoch(value, reader) != writes.epoch(value, last):
            return Reason.WRITTEN_IN_BETWEEN(value=value.name, **between)
    return None
