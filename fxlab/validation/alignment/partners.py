"""The partner of each node of a graph in another, by the fingerprints of their values: alignments ask it."""

import bisect
from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from fxlab.operators.node_info import module_path
from fxlab.validation.alignment.fingerprint import TOLERANCE, Fingerprint, Found
from fxlab.validation.alignment.side import Side
from fxlab.values.nested import Path

_AROUND = 8
"""Of a value that occurs at very many places, how many before and behind the expected one are looked at."""


def partners_in(side: Side, other: Side) -> dict[Node, Node]:
    """Return, by node of ``side``, a node of the other graph that has all its values.

    Of several, the one with the same order and shape; then the one that reads partners of the node's
    inputs, and that of the same name or place. Values in another order in the same shape are others.
    """
    found, nodes = Found(), [*other.values]
    for place, values in enumerate(other.values.values()):
        for value in values.values():
            found.add(value, place)
    places = {node: place for place, node in enumerate(nodes)}
    partners: dict[Node, Node] = {}
    latest = -1
    widest = max(other.tolerance.values(), default=0.0)
    for node, values in side.values.items():
        own = side.tolerance.get(node, 0.0)
        most = max(own, widest, TOLERANCE)
        read = {partners[each] for each in node.all_input_nodes if each in partners}
        reading = [places[user] for each in read for user in each.users if user in places]
        sets = [
            {place for group in found.like(value, most) for place in _near(group, latest + 1, reading)}
            for value in values.values()
        ]
        best: tuple[Any, Node] | None = None
        for place in set.intersection(*sets):
            candidate = nodes[place]
            tolerance = max(own, other.tolerance.get(candidate, 0.0), TOLERANCE)
            is_same, fits = _likeness(values, other.values[candidate], tolerance)
            fit = (*fits, *_fit_of(node, candidate, read), -abs(place - latest - 1))
            if is_same and (best is None or fit > best[0]):
                best = fit, candidate
        if best is not None:
            partners[node] = best[1]
            latest = places[best[1]]
    return partners


def _near(group: list[int], expected: int, reading: list[int]) -> list[int]:
    """Return the places of a group that may be meant: all of few, else those around one, and readers."""
    if len(group) <= 2 * _AROUND:
        return group
    at = bisect.bisect_left(group, expected)
    others = (bisect.bisect_left(group, place) for place in reading)
    known = [group[at] for at in others if at < len(group) and group[at] in reading]
    return [*group[max(0, at - _AROUND) : at + _AROUND], *known]


def _likeness(
    values: Mapping[Path, Fingerprint], others: Mapping[Path, Fingerprint], tolerance: float
) -> tuple[bool, tuple[bool, bool]]:
    """Tell whether values are the same, and whether they are so in order and shape."""
    in_order = in_shape = True
    for path, value in values.items():
        other = others.get(path) or next(
            (each for each in others.values() if value.is_like(each, tolerance)), None
        )
        if other is None or not value.is_like(other, tolerance):
            return False, (False, False)
        is_ordered, is_shaped = value.is_in_order_of(other, tolerance), value.shape == other.shape
        if is_shaped and not is_ordered:
            return False, (False, False)
        in_order, in_shape = in_order and is_ordered, in_shape and is_shaped
    return True, (in_order, in_shape)


def _fit_of(node: Node, candidate: Node, read: set[Node]) -> tuple[Any, ...]:
    """Return more for a candidate that fits a node better, whose inputs' partners are known."""
    return (
        (candidate.op == "placeholder") == (node.op == "placeholder"),
        len(read.intersection(candidate.all_input_nodes)),
        candidate.name == node.name,
        module_path(candidate) == module_path(node),
    )
