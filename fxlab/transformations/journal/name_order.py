"""Orders of names in which some are removed or moved: ``undo`` puts them back, differences merge two."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from torch.fx import Graph, GraphModule, Node


def merged_order(known: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the present names in their order, and known absent ones behind their last present predecessor.

    So a name that was inserted since stays next to its successor.
    """
    is_present = set(present)
    behind: dict[str | None, list[str]] = defaultdict(list)
    predecessor: str | None = None
    for name in known:
        if name in is_present:
            predecessor = name
        else:
            behind[predecessor].append(name)
    result = behind[None]
    for name in present:
        result += [name, *behind[name]]
    return result


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Sort names by an order; names that it does not have come last, in their present order."""
    position = {name: index for index, name in enumerate(order)}
    return sorted(names, key=lambda name: position.get(name, len(position)))


def moved(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """Return the moved names among those of both, as few as explain the new order."""
    place = {name: number for number, name in enumerate(before)}
    common = [name for name in now if name in place]
    kept = longest_rise([place[name] for name in common])
    return tuple(name for number, name in enumerate(common) if number not in kept)


def longest_rise(numbers: Sequence[int]) -> set[int]:
    """Return the places of a longest increasing subsequence of different numbers."""
    ends: list[int] = []
    places: list[int] = []
    before: dict[int, int | None] = {}
    for place, number in enumerate(numbers):
        at = bisect_left(ends, number)
        before[place] = places[at - 1] if at else None
        ends[at : at + 1] = [number]
        places[at : at + 1] = [place]
    found, last = set[int](), places[-1] if places else None
    while last is not None:
        found.add(last)
        last = before[last]
    return found


def put_in_place(graph: Graph, nodes: Collection[Node], order: Sequence[str]) -> None:
    """Move nodes of a graph to their places in an order of names."""
    if not nodes:
        return
    to_move = {node.name: node for node in nodes}
    by_name = {node.name: node for node in graph.nodes}
    follower: Node | None = None
    for name in reversed(order):
        node = by_name.get(name)
        if node is None:
            continue
        if name in to_move and follower is not None:
            follower.prepend(node)
        follower = node
    for name in order:
        if name in to_move and name in by_name:
            move_after_inputs(to_move[name])


def move_after_inputs(node: Node) -> None:
    """Keep the graph valid if the inputs of a restored node were moved."""
    last: Node | None = None
    for other in node.all_input_nodes:
        if last is None or last < other:
            last = other
    if last is not None and node < last:
        last.append(node)


def moved_nodes(original: GraphModule, transformed: GraphModule) -> tuple[str, ...]:
    """Return the names of moved nodes of both graphs, as few as explain the new order."""
    before, now = ([node.name for node in module.graph.nodes] for module in (original, transformed))
    return moved(before, now)
