"""Rewrites of a hierarchy's raw tree of module calls that make it readable: hoisting, repeats, stretches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import fx, nn

from fxlab.drawing.hierarchy.auxiliary_nodes import GUARDS, ORDER, RESULTS, SIZES, AuxiliaryNodes
from fxlab.drawing.hierarchy.placement import BACKWARD
from fxlab.operators.node_info import known_result, parameters_in, short_name

LONGEST_LIST = 150
"""Longer lists of children are cut into stretches."""
STRETCH, SHORTEST_STRETCH, LONGEST_STRETCH = 50, 25, 75
LONGEST_RUN, SHORTER_RUN = 48, 32
"""A run of more equal blocks than the first is cut into runs of the second."""
FEWEST_LIKE_THE_FIRST = 4
"""A run shows its first block when it is opened, and as many others or more as one box."""
ALWAYS_FOLDED = (SIZES, GUARDS, RESULTS)
"""Bookkeeping that is folded even if it is a single node."""
MOST_IN_SIGHT, FEWEST_BLOCKS = 16, 3
"""Where the graph itself has more children than the first, as many blocks of one list are one box."""
FEWEST_EQUAL_NODES = 8
"""Fewer equal nodes side by side are drawn one by one."""

NUMBERED = re.compile(r"_\d+$")
"""The end of a name that torch has made unlike the names before."""
_WORDY = (float, str)
"""Arguments that two equal nodes share."""
Marks = Mapping[str, Sequence[str]]
"""Node name -> the marks on the node."""
_Signature = tuple[str | bytes, ...]
_INDEXED = re.compile(
    r"^(?P<prefix>(?:.*\.)?)(?P<index>\d+)(?P<call>(?:@\d+)?(?: \(\w+\))?(?:~\d+)?)$", re.DOTALL
)
_BLOCK = re.compile(r"^(?P<prefix>.*\.)(?P<index>\d+|\[\d+-\d+\])(?P<pass>(?: \(\w+\))?)$", re.DOTALL)
"""A block of a list, or a run of equal ones."""

GroupKind = Literal["root", "module", "repeat", "segment", "bookkeeping"]


@dataclass(eq=False)
class Draft:
    """A group while it is being arranged."""

    path: str
    kind: GroupKind
    class_name: str
    label: str = ""
    members: int = 1
    children: list[Draft | fx.Node] = field(default_factory=list)
    owners: dict[fx.Node, Draft] = field(default_factory=dict)
    """Nodes that stand for a whole module call, and the call."""

    def __post_init__(self) -> None:
        self.label = self.label or short_name(self.path)


def hoist_single_nodes(draft: Draft) -> None:
    """Replace module calls that made a single node by that node."""
    for position, child in enumerate(draft.children):
        if not isinstance(child, Draft):
            continue
        hoist_single_nodes(child)
        if len(child.children) == 1 and isinstance(child.children[0], fx.Node):
            node = child.children[0]
            draft.children[position] = node
            draft.owners[node] = child.owners.get(node, child)


def fold_bookkeeping(draft: Draft, found: AuxiliaryNodes) -> bool:
    """Fold the nodes of each group that only serve others; tell whether all nodes in the group are such."""
    inner = [child for child in draft.children if isinstance(child, Draft)]
    are_whole = [fold_bookkeeping(child, found) for child in inner]
    serving = [child for child in draft.children if isinstance(child, fx.Node) and child in found.kinds]
    if all(are_whole) and len(serving) == len(draft.children) - len(inner):
        return True
    hosted = _hosted(draft, serving, found) if draft.kind == "root" else {}
    folded = {host: _bookkeeping_draft(draft, host.name, nodes, host) for host, nodes in hosted.items()}
    gone = {node for nodes in hosted.values() for node in nodes}
    others = [node for node in serving if node not in gone]
    kinds = sorted({found.kinds[node] for node in others}, key=ORDER.index)
    if len(others) > 1 or any(kind in ALWAYS_FOLDED for kind in kinds):
        folded[others[0]] = _bookkeeping_draft(draft, ", ".join(kinds), others)
        gone |= {*others[1:]}
    draft.children = [
        made if (made := folded.get(child)) else child  # type: ignore[arg-type]
        for child in draft.children
        if child not in gone
    ]
    return False


def _hosted(draft: Draft, serving: Sequence[fx.Node], found: AuxiliaryNodes) -> dict[fx.Node, list[fx.Node]]:
    """Return the nodes that are drawn with an input that they alone are made of, or with the output."""
    ends = {child: child.op for child in draft.children if isinstance(child, fx.Node)}
    inputs = [node for node, op in ends.items() if op == "placeholder"]
    outputs = [node for node, op in ends.items() if op == "output"]
    by_kind: dict[str, list[fx.Node]] = {}
    for node in serving:
        by_kind.setdefault(found.kinds[node], []).append(node)
    hosted: dict[fx.Node, list[fx.Node]] = {}
    for kind, nodes in by_kind.items():
        hosts = outputs if kind == RESULTS else _made_of(kind, nodes, inputs, found)
        if hosts:
            hosted.setdefault(hosts[0], []).extend(nodes)
    order = {node: place for place, node in enumerate(serving)}
    return {host: sorted(nodes, key=order.__getitem__) for host, nodes in hosted.items()}


def _made_of(
    kind: str, nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], found: AuxiliaryNodes
) -> Sequence[fx.Node]:
    """Return the input that nodes are made of, if there is one; sizes and checks are drawn with any."""
    read = {source: None for node in nodes for source in node.all_input_nodes}
    if kind in (SIZES, GUARDS):
        return [node for node in inputs if node in read] or inputs
    data = {
        source: None
        for node in nodes
        for source in node.all_input_nodes
        if source.op != "get_attr" and found.kinds.get(source) != kind and not found.is_aside(source, node)
    }
    return [node for node in inputs if node in data] if len(data) == 1 else ()


def _bookkeeping_draft(
    draft: Draft, label: str, nodes: Sequence[fx.Node], host: fx.Node | None = None
) -> Draft:
    """Return a group of bookkeeping: its path is the same in stages in which it holds other kinds."""
    path = f"{draft.path}#{host.name if host else ''}"
    children = [*nodes] if host is None else [host, *nodes] if host.op == "placeholder" else [*nodes, host]
    made = Draft(path, "bookkeeping", class_name="", label=label, children=[*children])
    made.owners = _owners(draft, nodes)
    return made


def _owners(draft: Draft, children: Sequence[Draft | fx.Node]) -> dict[fx.Node, Draft]:
    return {child: draft.owners[child] for child in children if child in draft.owners}


Integers = np.ndarray[Any, np.dtype[np.int64]]


class Wiring:
    """The reads among numbered nodes, each asked for once: a good part of arranging 100,000 nodes."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        self._number = number = {node: place for place, node in enumerate(nodes)}
        inputs = [node.all_input_nodes for node in nodes]
        sources = [number.get(source, -1) for read in inputs for source in read]
        self._sources: Integers = np.array(sources, dtype=np.int64)
        """The inputs of each node, one after the other; -1 for a node that is not in the list."""
        self._starts: Integers = np.cumsum([0, *map(len, inputs)])
        """Where the reads of each node start."""

    def inside(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """Return something equal for stretches of the list that are wired alike within themselves."""
        starts = self._starts[start : stop + 1]
        sources = self._sources[starts[0] : starts[-1]]
        is_inside = (start <= sources) & (sources < stop)
        return (starts - starts[0]).tobytes(), np.where(is_inside, sources - start, -1).tobytes()

    def edges(self, nodes: Sequence[fx.Node]) -> tuple[Integers, Integers]:
        """Return sources and targets of the reads, where the same nodes are in another order."""
        order = np.fromiter((self._number[node] for node in nodes), dtype=np.int64, count=len(nodes))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        drawn = self._sources >= 0
        sources = place[self._sources[drawn]]
        targets = np.repeat(place, np.diff(self._starts))[drawn]
        by_target = np.argsort(targets, kind="stable")
        return sources[by_target], targets[by_target]


def fold_repeats(root: Draft, modules: dict[str, nn.Module], marks: Marks) -> Wiring:
    """Fold numbered siblings of equal structure and marks into runs; return the wiring of all nodes below."""
    nodes: list[fx.Node] = []
    blocks: list[tuple[Draft, int, int]] = []
    _collect(root, nodes, blocks)
    wiring = Wiring(nodes)
    words: dict[Any, int] = {}
    spelled = np.zeros(len(nodes), dtype=np.int64)
    for start, stop in _outermost(blocks):
        spelled[start:stop] = [
            words.setdefault((_word(node, modules), *marks.get(node.name, ())), len(words))
            for node in nodes[start:stop]
        ]
    # Two blocks have the same signature when they are drawn and wired alike.
    signatures: dict[Draft, _Signature] = {
        draft: (draft.class_name, spelled[start:stop].tobytes(), *wiring.inside(start, stop))
        for draft, start, stop in blocks
    }
    # A block and its backward are folded in the same way.
    for forward, backward in _partners(signatures):
        both = (*signatures[forward], *signatures[backward])
        signatures[forward] = signatures[backward] = both
    _fold(root, signatures)
    return wiring


def _partners(blocks: Iterable[Draft]) -> list[tuple[Draft, Draft]]:
    """Return the blocks of a step that have a backward, and that."""
    by_path = {block.path: block for block in blocks}
    ends = [path.removesuffix(BACKWARD) for path in by_path if path.endswith(BACKWARD)]
    return [(by_path[path], by_path[path + BACKWARD]) for path in ends if path in by_path]


def nodes_in(child: Draft | fx.Node) -> Iterator[fx.Node]:
    """Yield a node, or the nodes below a group."""
    if isinstance(child, fx.Node):
        yield child
    else:
        for inner in child.children:
            yield from nodes_in(inner)


def _collect(draft: Draft, nodes: list[fx.Node], blocks: list[tuple[Draft, int, int]]) -> None:
    """Append the nodes below a group, and each numbered group with where its nodes start and stop."""
    for child in draft.children:
        if not isinstance(child, Draft):
            nodes.append(child)
            continue
        start = len(nodes)
        _collect(child, nodes, blocks)
        if _INDEXED.match(child.path):
            blocks.append((child, start, len(nodes)))


def _outermost(blocks: Sequence[tuple[Draft, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where the blocks that lie in no other start and stop; inner ones stand before outer ones."""
    left = None
    for _, start, stop in reversed(blocks):
        if left is None or stop <= left:
            yield start, stop
            left = start


def _word(node: fx.Node, modules: dict[str, nn.Module]) -> tuple[Any, ...]:
    op: str = node.op
    target: Any = node.target
    if op in ("call_function", "call_method"):
        target = _target_key(target)
    elif op == "call_module":
        module = modules.get(str(target))
        shapes = () if module is None else tuple([tuple(p.shape) for p in parameters_in(module)])
        target = (str(target).rpartition(".")[2], type(module).__name__, shapes)
    elif op == "get_attr":
        target = str(target).rpartition(".")[2]
    else:
        target = ""
    scalars: tuple[float | str, ...] = ()
    for argument in (*node.args, *node.kwargs.values()) if node.kwargs else node.args:
        if isinstance(argument, _WORDY):
            scalars += (argument,)
    return op, target, scalars, result_signature(node)


def _target_key(target: Any) -> Any:
    """Return something equal for targets that read alike: an object that is called may be one of many."""
    if isinstance(target, str) or hasattr(target, "__qualname__"):
        return target
    name = getattr(target, "__name__", None)
    return target if name is None else (type(target), name)


def result_signature(node: fx.Node) -> Any:
    """Return something cheap that is equal for results of equal shape and dtype."""
    value = known_result(node)
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    sizes = tuple(size if type(size) is int else _size_key(size) for size in shape)
    return sizes, getattr(value, "dtype", None)


def _size_key(size: Any) -> Any:
    """Return a symbolic size's expression, which compares faster than it is printed."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return str(size) if expression is None else expression


def _fold(draft: Draft, signatures: dict[Draft, _Signature]) -> None:
    for child in draft.children:
        if isinstance(child, Draft):
            _fold(child, signatures)
    replaced: dict[Draft, Draft | None] = {}
    for run in _runs(draft, signatures):
        folded = _run_draft(run)
        replaced[run[0]] = folded
        replaced |= dict.fromkeys(run[1:])
    if replaced:
        arranged: list[Draft | fx.Node] = []
        for child in draft.children:
            kept = replaced.get(child, child) if isinstance(child, Draft) else child
            if kept is not None:
                arranged.append(kept)
        draft.children = arranged


def _runs(draft: Draft, signatures: dict[Draft, _Signature]) -> list[list[Draft]]:
    lists: dict[tuple[str, str], list[tuple[int, Draft]]] = {}
    for child in draft.children:
        if isinstance(child, Draft) and child in signatures and (match := _INDEXED.match(child.path)):
            lists.setdefault((match["prefix"], match["call"]), []).append((int(match["index"]), child))
    runs: list[list[Draft]] = []
    for numbered in lists.values():
        numbered.sort(key=lambda pair: pair[0])
        run: list[Draft] = []
        last = -2
        for index, child in numbered:
            if not (run and index == last + 1 and signatures[child] == signatures[run[0]]):
                run = []
                runs.append(run)
            run.append(child)
            last = index
    return [run for run in runs if len(run) > 1]


def _run_draft(run: list[Draft]) -> Draft:
    """Return a run as a group of the first block and one of the others: of very many, of shorter runs."""
    first, *parts = [(block, block, block) for block in run]
    while len(parts) > LONGEST_RUN:
        stretches = [parts[start : start + SHORTER_RUN] for start in range(0, len(parts), SHORTER_RUN)]
        parts = [_span(stretch) for stretch in stretches]
    return _span([first, *([_span(parts)] if len(run) > FEWEST_LIKE_THE_FIRST else parts)])[0]


def _span(parts: list[tuple[Draft, Draft, Draft]]) -> tuple[Draft, Draft, Draft]:
    """Join groups, each with its first and last block."""
    if len(parts) == 1:
        return parts[0]
    first_block, last_block = parts[0][1], parts[-1][2]
    first, last = _INDEXED.match(first_block.path), _INDEXED.match(last_block.path)
    assert first is not None
    assert last is not None
    name = short_name(first["prefix"].rstrip("."))
    joined = Draft(
        path=f"{first['prefix']}[{first['index']}-{last['index']}]{first['call']}",
        kind="repeat",
        class_name=first_block.class_name,
        label=f"{name} {first['index']}–{last['index']}{_pass_of(first['call'])}".strip(),  # noqa: RUF001
        members=sum(part.members for part, _, _ in parts),
        children=[part for part, _, _ in parts],
    )
    return joined, first_block, last_block


def fold_equal_nodes(draft: Draft, modules: dict[str, nn.Module]) -> None:
    """Fold nodes in a row that do the same side by side, such as the parts of a cache or of a split."""
    arranged: list[Draft | fx.Node] = []
    for row in _rows(draft.children):
        first = row[0]
        if isinstance(first, Draft):
            fold_equal_nodes(first, modules)
        if len(row) < FEWEST_EQUAL_NODES:
            arranged += row
            continue
        for _, equal in itertools.groupby(row, lambda node: _word(node, modules)):  # type: ignore[arg-type]
            nodes = [node for node in equal if isinstance(node, fx.Node)]
            is_folded = len(nodes) >= FEWEST_EQUAL_NODES and not _read_each_other(nodes)
            arranged += [_row_draft(draft, nodes)] if is_folded else nodes
    draft.children = arranged


def _rows(children: Sequence[Draft | fx.Node]) -> Iterator[list[Draft | fx.Node]]:
    """Part a list where one child does not do the same as the one before, or reads it."""
    row: list[Draft | fx.Node] = []
    for child in children:
        if row and not _is_beside(child, row[-1]):
            yield row
            row = []
        row.append(child)
    if row:
        yield row


def _is_beside(child: Draft | fx.Node, before: Draft | fx.Node) -> bool:
    if isinstance(child, Draft) or isinstance(before, Draft):
        return False
    if child.op != before.op or child in before.users:
        return False
    is_same = child.op == "placeholder" or child.target is before.target
    return is_same or _target_key(child.target) == _target_key(before.target)


def _read_each_other(nodes: Sequence[fx.Node]) -> bool:
    row = set(nodes)
    return any(source in row for node in nodes for source in node.all_input_nodes)


def _row_draft(draft: Draft, nodes: Sequence[fx.Node]) -> Draft:
    made = stretch_draft(draft, nodes, "row")
    made.kind, made.members = "repeat", len(nodes)
    made.class_name = NUMBERED.sub("", nodes[0].name)
    return made


def fold_lists_of_blocks(root: Draft) -> None:
    """Fold numbered blocks of a list, as a first picture shows all children of the root, however many."""
    if len(root.children) <= MOST_IN_SIGHT:
        return
    arranged: list[Draft | fx.Node] = []
    for (prefix, pass_), grouped in itertools.groupby(root.children, _list_of):
        row = list(grouped)
        blocks = [child for child in row if isinstance(child, Draft)]
        if not prefix or len(row) < FEWEST_BLOCKS:
            arranged += row
            continue
        first, last = (
            str(block.path)[len(prefix) :].removesuffix(pass_) for block in (blocks[0], blocks[-1])
        )
        label = short_name(prefix.rstrip(".")) + pass_
        made = Draft(f"{prefix}[{first}…{last}]{pass_}", "segment", class_name="", label=label)
        made.children = [*blocks]
        arranged.append(made)
    root.children = arranged


def _list_of(child: Draft | fx.Node) -> tuple[str, str]:
    """Return the path of the list that a block is in, with a dot at its end, and the pass that it is in."""
    found = _BLOCK.match(child.path) if isinstance(child, Draft) else None
    return (found["prefix"], found["pass"]) if found else ("", "")


def _pass_of(call: str) -> str:
    """Return the end of a path that says which pass a call is in, if not the forward pass."""
    return call[call.find(" (") :].partition("~")[0] if " (" in call else ""


def segment_long_lists(draft: Draft) -> None:
    """Cut lists of children that no picture could show at once into stretches, and those again."""
    for child in draft.children:
        if isinstance(child, Draft):
            segment_long_lists(child)
    ends = {"placeholder", "output"}
    level = 0
    while len(draft.children) > LONGEST_LIST:
        inner = [child for child in draft.children if not (isinstance(child, fx.Node) and child.op in ends)]
        cuts = _narrow_places(inner or draft.children)
        arranged: list[Draft | fx.Node] = []
        stretch: list[Draft | fx.Node] = []
        for child in draft.children:
            if isinstance(child, fx.Node) and child.op in ends and len(arranged) < LONGEST_LIST // 3:
                arranged.append(child)
                continue
            stretch.append(child)
            if child in cuts:
                arranged.append(stretch_draft(draft, stretch, level))
                stretch = []
        if stretch:
            arranged.append(stretch_draft(draft, stretch, level))
        draft.children = arranged
        level += 1


def _narrow_places(children: Sequence[Draft | fx.Node]) -> set[Draft | fx.Node]:
    """Return the children after which a long list is cut: where few values are read further on."""
    place = {node: number for number, child in enumerate(children) for node in nodes_in(child)}
    changes = np.zeros(len(children) + 1, dtype=np.int64)
    for node, number in place.items():
        last = max((place.get(user, number) for user in node.users), default=number)
        changes[number] += last > number
        changes[last] -= last > number
    read_on = np.cumsum(changes)
    cuts: set[Draft | fx.Node] = set()
    start = 0
    while len(children) - start > STRETCH:
        window = range(start + SHORTEST_STRETCH - 1, min(start + LONGEST_STRETCH, len(children)))
        middle = start + STRETCH - 1
        _, _, cut = min((int(read_on[at]), abs(at - middle), at) for at in window)
        cuts.add(children[cut])
        start = cut + 1
    return cuts


def stretch_draft(draft: Draft, stretch: Sequence[Draft | fx.Node], level: int | str) -> Draft:
    """Return a group of children in a row, named by the first and the last."""
    ends = [[c.name] if isinstance(c, fx.Node) else c.label.split(" … ") for c in (stretch[0], stretch[-1])]
    first, last = ends[0][0], ends[1][-1]
    path = f"{draft.path}#{level}:{first}"
    made = Draft(path=path, kind="segment", class_name="", label=f"{first} … {last}", children=[*stretch])
    made.owners = _owners(draft, stretch)
    return made
