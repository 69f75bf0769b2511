"""Looking for nodes and groups by anything that is known of them.

The twin of ``frontend/src/viewer/search/search.ts``: what is found must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from fxlab.node_info import (
    DTYPES,
    class_name,
    class_names,
    dtype_name,
    frames_of,
    module_path,
    modules_by_path,
    target_text,
    value_rows,
    with_short_names,
)
from fxlab.transformations.marks import marks
from fxlab.view_model.pass_state import readable_name
from fxlab.view_model.search.query import QueryError, Term, parse_query, quoted
from fxlab.view_model.search.reachability import reachable
from fxlab.view_model.wire import LONGEST_CLASSES, clip

if TYPE_CHECKING:
    from fxlab.transformations import Transformation

SHORTEST_SIGNATURE = 8
"""Characters of a signature by which a pass is known."""
FEW_PASSES = 6

Holds = Callable[[int], bool]
"""Whether a term holds of the node at a position."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """The searchable facts about a node, in lower case."""

    name: str
    op: str
    target: str
    module: str
    owner: str
    """The qualified class of the module that it belongs to."""
    classes: str
    """The classes of all modules around it, and that of the module that it calls."""
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    text: str
    """All that is looked through for bare words, but for where it was made."""
    made_at: str
    """The line of source that made it."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The distinct lines of source, and for each node those that made it, the innermost first."""

    lines: list[str]
    short: list[str]
    """The same without folders: every path has words that many would find."""
    places: list[tuple[int, ...]]


class NodeSearch:
    """Finds the nodes of a graph by queries.

    Parameters
    ----------
    graph_module
        The graph, which must not change.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.graph_module = graph_module
        self._nodes = list(graph_module.graph.nodes)

    def names(self, query: str, passes: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the names of the nodes that are found, in the order of the graph; none for an empty query.

        Raises
        ------
        QueryError
            If the query cannot be answered.
        """
        return [self._nodes[i].name for i in self._positions(parse_query(query), passes)]

    def _positions(self, terms: Sequence[Term], passes: Mapping[str, Sequence[str]]) -> list[int]:
        found: Iterable[int] = range(len(self._nodes)) if terms else ()
        for term in terms:
            holds = self._reading(term, passes)
            found = [i for i in found if holds(i) is not term.negated]
        return list(found)

    def _reading(self, term: Term, passes: Mapping[str, Sequence[str]]) -> Holds:
        """Return what a term says of nodes."""
        facts, value = self._facts, term.value.lower()
        match term.field:
            case "":
                short = with_short_names(value).lower()
                return lambda i: any(v in facts[i].text for v in (value, short)) or value in facts[i].made_at
            case "name":
                return _on(part(value), lambda i: facts[i].name)
            case "op":
                return _on(part(value), lambda i: facts[i].op)
            case "target":
                return _on(part(with_short_names(value).lower()), lambda i: facts[i].target)
            case "module":
                return _on(part(value), lambda i: facts[i].module)
            case "class" if "." in value:
                return _on(part(value), lambda i: facts[i].owner)
            case "class":
                return _on(part(value), lambda i: facts[i].classes)
            case "shape":
                has_shape = shape_test(value)
                return lambda i: any(map(has_shape, facts[i].shapes))
            case "dtype":
                wanted = value.removeprefix("torch.")
                return lambda i: any(dtype.startswith(wanted) for dtype in facts[i].dtypes)
            case "source":
                is_there = part(value)
                places = self._source.places
                lines = {i for i, line in enumerate(self._source.lines) if is_there(line)}
                return lambda i: not lines.isdisjoint(places[i])
            case "by":
                signatures = _signatures(term.value, passes, self._marks)
                return lambda i: not signatures.isdisjoint(self._marks[i])
            case _:
                return self._related(term).__contains__

    def _related(self, term: Term) -> set[int]:
        """Return the nodes that a node is computed from, that are computed from it, or between two."""
        if term.field == "inputs":
            return reachable(self._inputs, self._position(term.value))
        if term.field == "users":
            return reachable(self._users, self._position(term.value))
        first, separator, last = term.value.partition("..")
        if not (first and separator and last):
            raise QueryError("path: needs two nodes, such as path:input_ids..output")
        start, stop = self._position(first), self._position(last)
        ahead = reachable(self._users, start) | {start}
        if stop not in ahead:
            back = start in reachable(self._users, stop)
            hint = " There is a path in the opposite direction." if back else ""
            raise QueryError(f"There is no path from {quoted(first)} to {quoted(last)}.{hint}")
        return ahead & (reachable(self._inputs, stop) | {stop})

    def _position(self, name: str) -> int:
        found = self._position_of.get(name)
        if found is not None:
            return found
        small = name.lower()
        names = [facts.name for facts in self._facts]
        if small in names:
            return names.index(small)
        close = next((i for i, other in enumerate(names) if small in other), None)
        hint = "" if close is None else f" There is {quoted(self._nodes[close].name)}."
        raise QueryError(f"There is no node {quoted(name)}.{hint}")

    @cached_property
    def _facts(self) -> list[_Facts]:
        modules = modules_by_path(self.graph_module)
        short, places = self._source.short, self._source.places
        return [
            _facts_of(node, modules, short[made_at[0]] if made_at else "")
            for node, made_at in zip(self._nodes, places, strict=True)
        ]

    @cached_property
    def _marks(self) -> list[frozenset[str]]:
        return [marks(node) for node in self._nodes]

    @cached_property
    def _position_of(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self._nodes)}

    @cached_property
    def _inputs(self) -> list[list[int]]:
        positions = {node: i for i, node in enumerate(self._nodes)}
        return [[positions[n] for n in node.all_input_nodes] for node in self._nodes]

    @cached_property
    def _users(self) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in self._nodes]
        for i, inputs in enumerate(self._inputs):
            for other in inputs:
                users[other].append(i)
        return users

    @cached_property
    def _source(self) -> _Source:
        numbers: dict[str, int] = {}
        short: dict[str, str] = {}
        known: dict[str, tuple[int, ...]] = {}
        places = []
        for node in self._nodes:
            trace = str(node.meta.get("stack_trace") or "")
            if trace not in known:
                frames = frames_of(node)
                lines = {_line(frame): _line(frame | {"file": _file_name(frame["file"])}) for frame in frames}
                short |= lines
                known[trace] = tuple(numbers.setdefault(line, len(numbers)) for line in lines)
            places.append(known[trace])
        return _Source(list(short), list(short.values()), places)


def part(value: str) -> Callable[[str], bool]:
    """Return a test for texts that have a value as a part; ``layer.1`` is no part of ``layer.10``.

    Examples
    --------
    >>> holds = part("layer.1")
    >>> holds("encoder.layer.1.output"), holds("encoder.layer.10.output")
    (True, False)
    """
    before = r"(?<![0-9])" if value[:1] in "0123456789" else ""
    after = r"(?![0-9])" if value[-1:] in "0123456789" else ""
    if not before and not after:
        return lambda text: value in text
    pattern = re.compile(before + re.escape(value) + after)
    return lambda text: value in text and pattern.search(text) is not None


def shape_test(value: str) -> Callable[[str], bool]:
    """Return a test for shapes, such as ``2×12×768``, that have sizes beside each other; all, in brackets.

    Examples
    --------
    >>> shape_test("12x768")("2×12×768"), shape_test("(12, 768)")("2×12×768"), shape_test("2")("12×2")
    (True, False, True)
    """  # noqa: RUF002
    sizes = "×".join(filter(None, re.split(r"[×x*, \t]+", value.strip("()[]"))))  # noqa: RUF001
    if value[:1] in "([" and value[-1:] in ")]":
        return lambda shape: shape == sizes
    if not sizes:
        raise QueryError("shape: needs sizes, such as shape:2x12")
    return lambda shape: f"×{sizes}×" in f"×{shape}×"  # noqa: RUF001


def names_of_passes(passes: Iterable[Transformation]) -> dict[str, tuple[str, str]]:
    """Return, by the signatures of passes, the names that people know them by."""
    return {p.signature: (readable_name(p), type(p).__name__) for p in passes}


def _line(frame: Mapping[str, Any]) -> str:
    return f"{frame['file']}:{frame['line']} {frame['function']} {frame['code']}".lower()


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _on(test: Callable[[str], bool], text: Callable[[int], str]) -> Holds:
    return lambda i: test(text(i))


def _signatures(value: str, passes: Mapping[str, Sequence[str]], marks: Iterable[Iterable[str]]) -> set[str]:
    wanted, small = _bare_name(value), value.lower()
    named = {s for s, names in passes.items() if wanted and any(wanted in _bare_name(n) for n in names)}
    if len(small) >= SHORTEST_SIGNATURE:
        named |= {
            s for s in {*passes, *(s for signatures in marks for s in signatures)} if s.startswith(small)
        }
    if named:
        return named
    known = list(dict.fromkeys(names[0] for names in passes.values()))
    offered = ", ".join(map(quoted, known[:FEW_PASSES])) + (", …" if len(known) > FEW_PASSES else "")
    raise QueryError(f"There is no pass {quoted(value)}." + (f" There is {offered}." if known else ""))


def _bare_name(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def _facts_of(node: fx.Node, modules: Mapping[str, nn.Module], made_at: str) -> _Facts:
    called = str(node.target) if node.op == "call_module" else ""
    target, owner = clip(target_text(node), 1_000), clip(class_name(node), 1_000)
    module = clip(module_path(node), 1_000)
    rows = [(clip(shape, 200), dtype_name(dtype)) for shape, dtype in value_rows(node)]
    shapes = [_sizes(shape) for shape, _ in rows if shape.startswith("(")]
    dtypes = [name for _, dtype in rows for name in (dtype.lower(), DTYPES.get(dtype)) if name]
    changed = "changed" if marks(node) else ""
    values = (shape for shape, _ in rows)
    words = (node.name, node.op, target, module, owner, *values, *shapes, *dtypes, changed)
    return _Facts(
        name=node.name.lower(),
        op=node.op,
        target=target.lower(),
        module=module.lower(),
        owner=owner.lower(),
        classes=clip(class_names(node, modules.get(called)), LONGEST_CLASSES).lower(),
        shapes=tuple(shapes),
        dtypes=tuple(dtypes),
        text="\n".join(words).lower(),
        made_at=made_at,
    )


def _sizes(shape: str) -> str:
    return "×".join(shape[1:-1].split(", ")).lower()  # noqa: RUF001
