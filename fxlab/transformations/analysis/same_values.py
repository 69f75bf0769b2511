"""Values that are still the same at a later place of a graph, and have no other users."""

from collections.abc import Collection, Iterable, Mapping

from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.aliasing_and_writes import Writes


def why_not_the_same(readers: Mapping[Node, Node], last: Node, writes: Writes) -> Refusal | None:
    """Return why values may have changed between their first readers and ``last``; ``None`` if not."""
    for value, reader in readers.items():
        between = {"first": reader.name, "last": last.name}
        if not writes.same_state(reader, last):
            return Reason.MODE_CHANGES_IN_BETWEEN(**between)
        if writes.epoch(value, reader) != writes.epoch(value, last):
            return Reason.WRITTEN_IN_BETWEEN(value=value.name, **between)
    return None


def first_readers(values: Iterable[Node | None], nodes: Collection[Node]) -> dict[Node, Node]:
    """Return for each value the first of some nodes that reads it."""
    return {
        value: min(node for node in nodes if value in node.all_input_nodes)
        for value in dict.fromkeys(values)
        if value is not None
    }


def why_of_use_elsewhere(inner: Iterable[Node], own: Collection[Node], writes: Writes) -> Refusal | None:
    """Return why inner nodes of a pattern cannot be erased; ``None`` if only its ``own`` ones need them."""
    for value in inner:
        if not all(user in own for user in value.users):
            return Reason.OTHER_USERS(value=value.name)
        if writes.is_written(value):
            return Reason.WRITTEN_IN_PLACE(value=value.name)
    return None
