"""Overlap of collectives with computation: starts move up, waits move down."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, starmap

from torch.fx import Node

from fxlab.checks import described
from fxlab.models.collectives import Collective, collective_kind, collectives_of, computes_something, is_wait
from fxlab.operators import operator_of, sets_global_state
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.aliasing_and_writes import written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.units import counted

_LATER = ("reduce_scatter", "all_reduce")
"""The kinds whose waits move down; those that gather move up."""


@dataclass(frozen=True)
class Shift:
    """A collective that can start earlier, or be waited for later."""

    collective: Collective
    nodes: tuple[Node, ...]
    """The node that moves, which an explanation names."""
    moves: tuple[Node, ...] = ()
    """All that moves with it, in its order."""
    beside: Node | None = None
    """The node that it moves before, or behind."""
    passed: int = 0
    """The number of computing nodes that it passes."""

    @property
    def is_start(self) -> bool:
        """Whether the start moves up; else the wait moves down."""
        return self.nodes[0] is self.collective.start

    @property
    def where(self) -> str:
        """The side of the other node on which to stand."""
        return "before" if self.is_start else "behind"


@dataclass(frozen=True)
class OverlapCollectives(RewritePass[Shift]):
    """Start gathers earlier and wait for reductions later, so that computation hides them.

    A start of ``all_gather`` moves up, with the casts and views that only it reads; a wait for
    ``reduce_scatter`` or ``all_reduce`` moves down, with the casts and views that only read it. Nothing else
    changes: no node passes one that it depends on, that writes its inputs, or whose effects are unknown.
    Collectives keep their order of starts, so that ranks that run other graphs still meet.

    Parameters
    ----------
    nodes
        The most computing nodes that a start or wait may pass.
    bytes
        The most bytes of collectives in flight at once; ``None`` for no limit. Values that are gathered early
        take memory for longer.

    Examples
    --------
    >>> import torch
    >>> import fxlab
    >>> def function(shard, x):
    ...     functional = torch.ops._c10d_functional
    ...     y = x.sin().cos()
    ...     weight = functional.wait_tensor(functional.all_gather_into_tensor(shard, 2, "0"))
    ...     return y @ weight
    >>> overlap = fxlab.OverlapCollectives()
    >>> gm = overlap(torch.fx.symbolic_trace(function))
    >>> [node.name for node in gm.graph.nodes]
    ['shard', 'x', 'all_gather_into_tensor', 'sin', 'cos', 'wait_tensor', 'matmul', 'output']
    >>> [node.name for node in overlap(gm, reverse=True).graph.nodes]
    ['shard', 'x', 'sin', 'cos', 'all_gather_into_tensor', 'wait_tensor', 'matmul', 'output']
    """

    nodes: int = 20
    bytes: int | None = None

    def __post_init__(self) -> None:
        """Check the bounds."""
        if type(self.nodes) is not int or self.nodes < 0:
            raise ValueError(f"nodes: expected a number of nodes, got {described(self.nodes)}.")
        if self.bytes is not None and (type(self.bytes) is not int or self.bytes < 0):
            raise ValueError(f"bytes: expected a number of bytes or None, got {described(self.bytes)}.")

    def match(self, facts: GraphFacts) -> Iterator[Shift]:
        """Yield the possible moves, each as far as the bounds and the moves before it allow."""
        found = collectives_of(facts.graph_module.graph)
        line = _Line(found, facts, self)
        gathers = (one for one in found if one.kind == "all_gather")
        # Last first: a wait stops at that for a later collective, which has then moved down.
        reductions = (one for one in reversed(found) if one.kind in _LATER)
        waits = ((one, wait) for one in reductions for wait in one.waits if is_wait(wait))
        for shift in chain(map(line.start_earlier, gathers), starmap(line.wait_later, waits)):
            if self.why_not(shift, facts) is None:
                line.move(shift)
            yield shift

    def refuse(self, candidate: Shift, facts: GraphFacts) -> Refusal | None:
        """Refuse collectives that write in place, and those with nothing to pass."""
        if written := written_inputs(candidate.collective.start, facts.graph_module):
            return Reason.WRITTEN_IN_PLACE(value=written[0].name)
        return None if candidate.passed else Reason.NOTHING_TO_PASS(where=candidate.where)

    def describe(self, candidate: Shift) -> str:
        """Tell where it goes."""
        assert candidate.beside is not None
        words = ("starts", "earlier") if candidate.is_start else ("waits", "later")
        passed = counted(candidate.passed, "computing node")
        return f"{words[0]} {passed} {words[1]}, {candidate.where} {candidate.beside.name}"

    def rewrite(self, candidate: Shift, edit: Editor) -> tuple[Node, ...]:
        """Move the nodes."""
        assert candidate.beside is not None
        edit.move(candidate.moves, candidate.beside if candidate.is_start else candidate.beside.next)
        return candidate.moves


class _Line:
    """The nodes in their future order, and the bytes in flight at each."""

    def __init__(self, found: Sequence[Collective], facts: GraphFacts, bounds: OverlapCollectives) -> None:
        self._facts, self._bounds = facts, bounds
        nodes = list(facts.graph_module.graph.nodes)
        self._next = dict(pairwise(nodes))
        self._before = {node: before for before, node in self._next.items()}
        self._in_flight = dict.fromkeys(nodes, 0)
        self._waits_for = {wait: one for one in found for wait in one.waits}
        self._started = {one.start: number for number, one in enumerate(found)}
        for one in found:
            for node in one.meanwhile:
                self._in_flight[node] += one.bytes

    def start_earlier(self, one: Collective) -> Shift:
        """Return how far a collective can start earlier."""
        start = one.start
        shift, moves, passed = Shift(one, (start,)), [start], 0
        node = self._before.get(start)
        while node is not None and node.op != "placeholder":
            read = {value for moved in moves for value in moved.all_input_nodes}
            if node in read:
                if why_impure(node, self._facts) is not None or not node.users.keys() <= {*moves}:
                    break
                moves.insert(0, node)
            elif collective_kind(node) or self._is_in_the_way(node, read):
                break
            elif computes_something(node):
                passed += 1
                if self._is_too_much(one, node, passed):
                    break
                shift = Shift(one, (start,), tuple(moves), node, passed)
            node = self._before.get(node)
        return shift

    def wait_later(self, one: Collective, wait: Node) -> Shift:
        """Return how far a wait can move down."""
        shift, moves, passed = Shift(one, (wait,)), [wait], 0
        node = self._next[wait]
        while node.op != "output":
            held = {*moves, *wait.all_input_nodes, *one.start.all_input_nodes}
            if not {*moves}.isdisjoint(node.all_input_nodes):
                if why_impure(node, self._facts) is not None or not {*node.all_input_nodes} <= {*moves}:
                    break
                moves.append(node)
            elif self._is_in_the_way(node, held) or self._is_over_at(node, one):
                break
            elif computes_something(node):
                passed += 1
                if self._is_too_much(one, node, passed):
                    break
                shift = Shift(one, (wait,), tuple(moves), node, passed)
            node = self._next[node]
        return shift

    def move(self, shift: Shift) -> None:
        """Move nodes."""
        assert shift.beside is not None
        for node in shift.moves:
            before, behind = self._before[node], self._next[node]
            self._join(before, behind)
        behind = shift.beside if shift.is_start else self._next[shift.beside]
        for node in shift.moves:
            self._join(self._before[behind], node)
            self._join(node, behind)
        node = shift.nodes[0]
        while node is not shift.beside:
            node = self._next[node] if shift.is_start else self._before[node]
            self._in_flight[node] += shift.collective.bytes

    def _join(self, before: Node, behind: Node) -> None:
        self._next[before], self._before[behind] = behind, before

    def _is_too_much(self, one: Collective, node: Node, passed: int) -> bool:
        most = self._bounds.bytes
        return passed > self._bounds.nodes or (most is not None and self._in_flight[node] + one.bytes > most)

    def _is_over_at(self, node: Node, one: Collective) -> bool:
        """Tell whether a node waits for a collective of the same group that was started later."""
        other = self._waits_for.get(node)
        if other is None or not is_wait(node) or other.group.name != one.group.name:
            return False
        return self._started[other.start] > self._started[one.start]

    def _is_in_the_way(self, node: Node, values: Iterable[Node]) -> bool:
        """Tell whether a node may write one of these values, or has unknown effects."""
        if node.op == "get_attr" or is_wait(node) or why_impure(node, self._facts) is None:
            return False
        operator = operator_of(node)
        if operator is None or not operator.is_known or sets_global_state(node):
            return True
        writes = self._facts.writes
        written = written_inputs(node, self._facts.graph_module)
        return any(writes.may_share_memory(each, value) for each in written for value in values)
