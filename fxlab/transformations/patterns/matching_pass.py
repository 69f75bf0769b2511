"""The base of passes that look for patterns: near misses, which ``why_not`` tells."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch.fx import Node

from fxlab.operators import operator_called
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.captured import NearMiss
from fxlab.transformations.patterns.matching import Matcher
from fxlab.transformations.patterns.pattern import Pattern, read_once
from fxlab.transformations.rewriting.rewrite_pass import Attempt, Candidate, RewritePass, misfits_of

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
    only_casts: ClassVar[bool] = False
    """Whether the patterns see through casts only."""

    def _patterns(self) -> Sequence[Pattern]:
        return [one for each in self.looks_for for one in read_once(each)]

    def _matcher(self, pattern: Pattern, index: GraphIndex) -> Matcher:
        return Matcher(pattern, index, explains=True)

    def near_misses(self, facts: GraphFacts, taken: Collection[Node]) -> list[Attempt]:
        """Return the near misses of the patterns, nearest first; a few others if there are none."""
        index = GraphIndex(facts)
        tried = [attempt_of(miss, index) for miss in self._near_misses(facts, {*taken})]
        return [each for each in tried if each.is_near] or tried[:_FEW]

    def near_misses_at(self, node: Node, facts: GraphFacts) -> list[Attempt]:
        """Return how far the patterns get at a node, from their last call or an earlier one."""
        missed = self._misses_at(node, GraphIndex(facts, only_casts=self.only_casts))
        index = GraphIndex(facts)
        return [attempt_of(miss, index) for miss in missed]

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
        return apart_from_each_other(near)

    def _is_around(self, node: Node, facts: GraphFacts) -> bool:
        called = operator_called(node, facts.graph_module)
        return called is not None and called.computes in self.around

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


def attempt_of(miss: NearMiss, index: GraphIndex) -> Attempt:
    """Return a near miss as an attempt of the pass."""

    def named(nodes: Iterable[Node]) -> tuple[str, ...]:
        return tuple(f"{index.facts.prefix}{node.name}" for node in nodes)

    (begins,), at = named([miss.node]), named([miss.at] if miss.at else [])
    said = False, miss.words, miss.refusal.code, miss.reached, miss.calls, "".join(at), begins
    passed = (node for node in miss.nodes if (term := index.calls.term(node)) and term.is_transparent)
    fits = named(node for node in miss.nodes if node is not miss.at)
    misfits = at or misfits_of(miss.refusal, (), index.facts)
    return Attempt(*said, fits, named(passed), misfits, named(miss.nodes), miss.is_near)


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
