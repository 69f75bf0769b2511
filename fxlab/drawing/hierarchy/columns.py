"""The columns of a training step in a hierarchy: forward down, backward up next to it, the update behind."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from torch import fx

from fxlab.drawing.hierarchy.folding import Draft, nodes_in, stretch_draft

FORWARD, BACK, UPDATE, BELOW = range(4)
"""Numbers of columns from left to right; the output stands below them."""
HEADINGS = ("Forward", "Backward", "Optimizer")
FEWEST_LOOSE = 6
"""As many nodes in a row between the modules of a step are one box: they would hide its columns."""


def columns_of(root: Draft, backward: AbstractSet[fx.Node]) -> tuple[int, ...]:
    """Return the column of each child of the root; none for a graph that is not a step."""
    if not backward:
        return ()
    place = {node: number for number, child in enumerate(root.children) for node in nodes_in(child)}
    directions = _directions(place, backward)
    counts = [[0] * 4 for _ in root.children]
    readers = [BELOW] * len(counts)
    reads_others = [False] * len(counts)
    for node, number in place.items():
        counts[number][directions[node]] += 1
        for source in node.all_input_nodes:
            if place.get(source, number) != number:
                reads_others[number] = True
                readers[place[source]] = min(readers[place[source]], directions[node])
    columns = []
    for number, (child, (forward, back, update, below)) in enumerate(zip(root.children, counts, strict=True)):
        is_given = isinstance(child, fx.Node) or child.kind == "bookkeeping"
        if below:
            columns.append(BELOW)
        elif back > forward + update:
            columns.append(BACK)
        elif update:
            columns.append(UPDATE)
        else:  # inputs and constants stand where they are read first
            is_read_later = is_given and not reads_others[number] and readers[number] != BELOW
            columns.append(readers[number] if is_read_later else FORWARD)
    calls = {column for column, child in zip(columns, root.children, strict=True) if _calls(child)}
    return tuple(columns) if {FORWARD, BACK} <= calls else ()


def fold_loose(root: Draft, columns: Sequence[int]) -> tuple[int, ...]:
    """Fold nodes of a step in a row outside of all modules; return the columns of the children."""
    if not columns or not any(isinstance(child, Draft) and child.kind == "module" for child in root.children):
        return tuple(columns)
    place = {node: number for number, child in enumerate(root.children) for node in nodes_in(child)}
    arranged: list[tuple[Draft | fx.Node, int]] = []
    both = zip(root.children, columns, strict=True)
    for (is_loose, column), row in groupby(both, lambda pair: (_is_loose(root, pair[0]), pair[1])):
        children = [child for child, _ in row]
        if is_loose and len(children) >= FEWEST_LOOSE and not _surround(children, place):
            children = [stretch_draft(root, children, "loose")]
        arranged += [(child, column) for child in children]
    root.children = [child for child, _ in arranged]
    return tuple(column for _, column in arranged)


def _surround(row: Sequence[Draft | fx.Node], place: dict[fx.Node, int]) -> bool:
    """Whether a module reads some of a row of nodes, and others of the row read the module."""
    nodes = {node for node in row if isinstance(node, fx.Node)}
    reads = {place[source] for node in nodes for source in {*node.all_input_nodes} - nodes if source in place}
    return any(place.get(user) in reads for node in nodes for user in {*node.users} - nodes)


def _is_loose(root: Draft, child: Draft | fx.Node) -> bool:
    return isinstance(child, fx.Node) and _calls(child) and child not in root.owners


def _directions(place: dict[fx.Node, int], backward: AbstractSet[fx.Node]) -> dict[fx.Node, int]:
    """Return the column of each node; the optimizer's depend on the backward pass, but are not its."""
    directions: dict[fx.Node, int] = {}
    for node in next(iter(place)).graph.nodes:
        if node not in place:
            continue
        if node.op == "output":
            directions[node] = BELOW
        elif node in backward:
            directions[node] = BACK
        else:
            is_late = any(directions.get(source, FORWARD) != FORWARD for source in node.all_input_nodes)
            directions[node] = UPDATE if is_late else FORWARD
    return directions


def _calls(child: Draft | fx.Node) -> bool:
    if isinstance(child, Draft):
        return child.kind != "bookkeeping"
    return child.op not in ("placeholder", "output")
