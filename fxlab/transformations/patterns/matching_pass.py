"""The base of passes that look for patterns and report near misses."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch.fx import GraphModule, Node

from fxlab.base.first_use import pd
from fxlab.operators import operator_called
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.base import explanation
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.matching import Matcher, NearMiss
from fxlab.transformations.patterns.pattern import Pattern, read_once
from fxlab.transformations.rewriting.rewrite_pass import Attempt, Candidate, RewritePass, misfits_of, nodes_of

C = TypeVar("C", bound=Candidate)
_FEW = 5
"""The number of places reported if a pattern nearly matches nowhere."""
_MOST = 12
"""The number of calls around which a pass of fxlab looks for near misses."""
_LEAST = 1 / 3
"""The share of a pattern that must fit there."""


@dataclass(frozen=True, eq=False)
class MatchingPass(RewritePass[C]):
    """Reports near misses of the patterns of its candidates."""

    looks_for: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Its candidates, as functions of eager torch."""
    unlike: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Patterns that look like a near miss, and are none."""
    around: ClassVar[frozenset[str]] = frozenset()
    """Names of operators, one of which each candidate calls."""
    tells_always: ClassVar[bool] = False
    """Whether it reports near misses next to candidates."""
    only_casts: ClassVar[bool] = False
    """Whether the patterns see through casts only."""

    def _patterns(self) -> Sequence[Pattern]:
        return [one for each in self.looks_for for one in read_once(each)]

    def _matcher(self, pattern: Pattern, index: GraphIndex) -> Matcher:
        return Matcher(pattern, index, explains=True)

    def _tried(self, facts: GraphFacts, *, misses: bool = True) -> tuple[Sequence[C], list[NearMiss]]:
        """Return the candidates, and the near misses of patterns, nearest first."""
        candidates = list(self.match(facts))
        taken = {node for each in candidates for node in (*nodes_of(each), *getattr(each, "inner", ()))}
        return candidates, self._near_misses(facts, taken) if misses else []

    def _near_misses(self, facts: GraphFacts, taken: set[Node]) -> list[NearMiss]:
        """Return the near misses of patterns, without taken nodes."""
        index = GraphIndex(facts, only_casts=self.only_casts)
        anchors = (node for node in index.position if node not in taken and self._is_around(node, facts))
        others = [Matcher(one, index) for each in self.unlike for one in read_once(each)]
        found: dict[Node, NearMiss] = {}
        for anchor in itertools.islice(anchors, _MOST):
            for matcher in others if anchor not in taken else ():
                for _, other in matcher.matches(from_here_on(anchor, matcher, index)):
                    taken = taken | other.nodes.keys()
            for miss in self._misses_at(anchor, index) if anchor not in taken else ():
                found.setdefault(miss.node, miss)
        near = (m for m in found.values() if taken.isdisjoint(m.nodes) and m.share > _LEAST)
        apart = apart_from_each_other(near)
        return [miss for miss in apart if miss.is_near] or apart

    def _is_around(self, node: Node, facts: GraphFacts) -> bool:
        called = operator_called(node, facts.graph_module)
        return called is not None and called.computes in self.around

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """As :meth:`RewritePass.explain`; rows of near misses follow those of the candidates."""
        numbers = itertools.count()
        rows: list[tuple[str, bool, str, str, int]] = []
        missed: list[tuple[GraphFacts, NearMiss]] = []
        known = self._facts_of(graph_module)
        for facts in known:
            candidates, misses = self._tried(facts, misses=self.tells_always)
            for candidate in candidates:
                rows += self._rows(candidate, facts, next(numbers))
            missed += [(facts, miss) for miss in misses if miss.is_near]
        if not rows and not self.tells_always:
            missed = [(facts, miss) for facts in known for miss in self._near_misses(facts, set())][:_FEW]
        for facts, miss in missed:
            number = next(numbers)
            for node in miss.nodes:
                rows.append((f"{facts.prefix}{node.name}", False, miss.words, miss.refusal.code, number))
        return explanation(rows)

    def attempts(self, graph_module: GraphModule, node: str | None = None) -> list[Attempt]:
        """Return how far the pattern gets at a node, or its near misses, furthest first."""
        found: list[Attempt] = []
        for facts in self._facts_of(graph_module):
            candidates, misses = self._tried(facts)
            for candidate in candidates:
                own = [*nodes_of(candidate), *getattr(candidate, "inner", ())]
                names = [f"{facts.prefix}{each.name}" for each in own]
                if node is None or node in names:
                    count = self._count(candidate)
                    made = self._attempt(candidate, facts, tuple(names))
                    found.append(made._replace(reached=count, operators=count))
            if node is None:
                misses = [miss for miss in misses if miss.is_near] or misses[:_FEW]
            elif not found and node.startswith(facts.prefix):
                index = GraphIndex(facts, only_casts=self.only_casts)
                wanted = node.removeprefix(facts.prefix)
                at = next((each for each in index.position if each.name == wanted), None)
                misses = [] if at is None else self._misses_at(at, index)
            else:
                misses = []
            calls = GraphIndex(facts).calls
            for miss in misses:
                at_name = "" if miss.at is None else f"{facts.prefix}{miss.at.name}"
                is_whole = miss.reached == miss.calls and miss.at is None
                words = (miss.refusal.words if is_whole else miss.words, miss.refusal.code)
                begins = f"{facts.prefix}{miss.node.name}"
                terms = [(each, calls.term(each)) for each in miss.nodes]
                fits = tuple(f"{facts.prefix}{each.name}" for each in miss.nodes if each is not miss.at)
                passed = tuple(f"{facts.prefix}{e.name}" for e, term in terms if term and term.is_transparent)
                misfits = (at_name,) if at_name else misfits_of(miss.refusal, (), facts)
                counts = miss.reached, miss.calls
                found.append(Attempt(False, *words, *counts, at_name, begins, fits, passed, misfits))
        return sorted(found, key=lambda each: -each.reached / max(each.operators, 1))

    def _count(self, candidate: C) -> int:
        """Return the number of calls of a candidate."""
        return len(nodes_of(candidate)) + len(getattr(candidate, "inner", ()))

    def _misses_at(self, node: Node, index: GraphIndex) -> list[NearMiss]:
        """Return how far the patterns get at a node, from their last call or an earlier one."""
        found, partial = list[NearMiss](), list[NearMiss]()
        for matcher in (self._matcher(pattern, index) for pattern in self._patterns()):
            list(matcher.matches(from_here_on(node, matcher, index)))
            found += [miss for miss in matcher.misses if node in miss.nodes or node is miss.at]
            partial += matcher.partial([node])
            partial += [miss for miss in matcher.partial(node.all_input_nodes) if miss.at is node]
        best: dict[Node, NearMiss] = {}
        for miss in (*found, *partial):
            if miss.node not in best or miss.reached > best[miss.node].reached:
                best[miss.node] = miss
        return list(best.values())


def from_here_on(node: Node, matcher: Matcher, index: GraphIndex) -> dict[Node, None]:
    """Return a node, and the nodes downstream of it that may be a result of the pattern."""
    level, around = [node], {node: None}
    for _ in range(matcher.levels_to_result(node)):
        level = [user for each in level for user in index.readers(each) if user not in around]
        around.update(dict.fromkeys(level))
    return around


def apart_from_each_other(misses: Iterable[NearMiss]) -> list[NearMiss]:
    """Return near misses, nearest first, without those that contain, or are part of, a nearer one."""
    apart, covered = dict[Node, NearMiss](), set[Node]()
    for miss in sorted(misses, key=lambda miss: -miss.share):
        if miss.node not in covered and apart.keys().isdisjoint(miss.nodes):
            apart[miss.node] = miss
            covered.update(miss.nodes)
    return list(apart.values())
