"""The pass that ``from_pattern`` makes of a pattern and its replacement."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import pytree
from fxlab.operators import draws_random_numbers
from fxlab.operators.node_info import outputs_of
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.strides import layout_matters
from fxlab.transformations.calls.graph_index import GraphIndex, is_guard
from fxlab.transformations.calls.term import Weight
from fxlab.transformations.foreign.from_callable import name_of
from fxlab.transformations.patterns.captured import (
    AbsorbedTerms,
    CallInPlaceOfModule,
    NearMiss,
    PartialMatch,
    Size,
    open_sizes_in,
)
from fxlab.transformations.patterns.confirming import Confirmation, Confirming
from fxlab.transformations.patterns.match import (
    Match,
    place_of_replacement,
    why_aliased,
    why_used_elsewhere,
    why_written,
)
from fxlab.transformations.patterns.matching import Matcher
from fxlab.transformations.patterns.matching_pass import MatchingPass, apart_from_each_other
from fxlab.transformations.patterns.pattern import Pattern, arguments_of, read_pattern, trace
from fxlab.transformations.patterns.replacing import Placing, Replacement
from fxlab.transformations.rewriting.autocast import refuse_autocast
from fxlab.transformations.rewriting.dialects import contiguous_call
from fxlab.transformations.rewriting.dtype_checks import dtype_checks, move_dtype_checks
from fxlab.transformations.rewriting.editor import Editor, place_of


@dataclass(frozen=True, eq=False)
class PatternPass(MatchingPass[Match]):
    """A pattern and its replacement; made by :func:`fxlab.from_pattern`."""

    patterns: tuple[Callable[..., Any], ...]
    replacement: Callable[..., Any]
    where: Mapping[str, Callable[[Match], bool]]
    name: str
    preserves_computation: bool = False

    @property
    def description(self) -> str:
        """The docstring of the replacement or the pattern, or their names."""
        first = self.patterns[0]
        words = f"Replace {name_of(first)} by {name_of(self.replacement)}."
        return self.replacement.__doc__ or first.__doc__ or words

    def _patterns(self) -> list[Pattern]:
        return self._read

    def _matcher(self, pattern: Pattern, index: GraphIndex, *, explains: bool = True) -> Matcher:
        return Matcher(pattern, index, explains=explains)

    @cached_property
    def _read(self) -> list[Pattern]:
        return [each for pattern in self.patterns for each in read_pattern(pattern)]

    @cached_property
    def _confirmed(self) -> dict[Any, Confirmation]:
        """The comparisons with the replacement, for each set of shapes."""
        return {}

    def match(self, facts: GraphFacts) -> Iterator[Match]:
        """Yield each place that the pattern matches, without those that overlap an earlier one."""
        index = GraphIndex(facts)
        found: dict[Node, tuple[Pattern, tuple[Node, ...], PartialMatch]] = {}
        for pattern in self._read:
            for roots, one in self._matcher(pattern, index, explains=False).matches():
                found.setdefault(roots[0], (pattern, roots, one))
        taken, moved, matches = set[Node](), dict[Node, Node](), list[Match]()
        for pattern, roots, one in sorted(found.values(), key=lambda each: index.position[each[1][0]]):
            if taken.isdisjoint(one.nodes):
                taken.update(one.nodes)
                nodes = tuple(sorted(one.nodes, key=index.position.__getitem__))
                captured = {**dict.fromkeys(_order_of(pattern)), **one.captured}
                match = Match(pattern, roots, nodes, captured, one, index, moved=moved)
                unmet = (words for words, condition in self.where.items() if not condition(match))
                excluded = next((Reason.CONDITION(condition=words) for words in unmet), None)
                matches.append(replace(match, excluded=excluded))
        return iter(matches)

    near_misses_beside_candidates: ClassVar = True

    def _near_misses(self, facts: GraphFacts, taken: set[Node]) -> list[NearMiss]:
        """Return the near misses outside of the matches, nearest first."""
        index = GraphIndex(facts)
        matchers = [self._matcher(pattern, index) for pattern in self._read]
        missed: dict[Node, NearMiss] = {}
        for matcher in matchers:
            list(matcher.matches())
            for miss in matcher.misses:
                if miss.node not in missed or miss.share > missed[miss.node].share:
                    missed[miss.node] = miss
        known = {node for miss in missed.values() if miss.is_near for node in miss.nodes} | taken
        for miss in (each for matcher in matchers for each in matcher.partial()):
            if miss.node not in known:
                missed[miss.node] = miss
        others = [miss for miss in missed.values() if taken.isdisjoint(miss.nodes)]
        return apart_from_each_other(sorted(others, key=lambda miss: index.position[miss.node]))

    def refuse(self, candidate: Match, facts: GraphFacts) -> Refusal | None:
        """Refuse other readers and writes, unmet conditions, and replacements found to differ."""
        return (
            why_used_elsewhere(candidate, facts)
            or why_written(candidate, facts)
            or candidate.excluded
            or self._why_other_result(candidate, facts)
        )

    def behaves_by_mode(self, candidate: Match, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the calls of modules that do something else in training."""
        modes = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
        return tuple(node for node in candidate.nodes if isinstance(facts.module(node), modes))

    def describe(self, candidate: Match) -> str:
        """Say that the nodes would be replaced."""
        return "would be replaced"

    def rewrite(self, candidate: Match, edit: Editor) -> tuple[Node, ...]:
        """Replace the match."""
        facts = candidate.index.facts
        replacement = self._replacement(candidate)
        moved = candidate.moved
        place = place_of_replacement(candidate)
        assert isinstance(place, Node)
        placing = Placing(edit, facts, place, candidate.roots[0])
        given = {name: placing.argument(_current(value, moved)) for name, value in candidate.captured.items()}
        known = self._confirmed.get(_confirming(candidate, facts).key())
        if known is not None and known.differs_under_autocast:
            refuse_autocast(place, edit, self.name, "where its result has another dtype")
        checks = [check for root in candidate.roots for check in dtype_checks(root, candidate.inner)]
        if len(candidate.roots) == 1:
            move_dtype_checks(checks, candidate.roots[0], edit)
        modules = {
            path: replace(own, input=_current(own.input, moved))
            if isinstance(own, CallInPlaceOfModule)
            else own
            for path, own in candidate.found.modules.items()
        }
        results = placing.all(replacement, given, modules)
        marked: list[Node] = []
        made = [node for node in placing.made if node.op != "get_attr"]
        for root, result in zip(candidate.roots, results, strict=True):
            marked += _put(root, result, made, results, edit, moved)
        for node in candidate.inner:
            _erase(node, edit)
        placing.erase_unused()
        return tuple(
            dict.fromkeys([*(node for node in made if node in edit.graph_module.graph.nodes), *marked])
        ) or (place,)

    def _why_other_result(self, match: Match, facts: GraphFacts) -> Refusal | None:
        try:
            replacement = self._replacement(match)
        except Exception as error:  # the author's own code, with numbers that it was not written for
            return Reason.REPLACEMENT_FAILS(error=f"{type(error).__name__}: {str(error)[:200]}")
        if reason := why_aliased(match, replacement, facts):
            return reason
        read = (match.captured.get(name) for node, name in replacement.inputs.items() if node.users)
        if sizes := [size for value in read for size in open_sizes_in(value)]:
            return Reason.CAPTURED_INSIDE(value=sizes[0].node.name)
        if self.preserves_computation and any(map(draws_random_numbers, match.nodes)):
            return Reason.RANDOM()
        confirming = _confirming(match, facts)
        key = confirming.key()
        if key is None:
            return None
        if key not in self._confirmed:
            self._confirmed[key] = confirming.compared(replacement)
        known = self._confirmed[key]
        if known.refusal is not None and (
            known.refusal.code != Reason.TOO_LARGE.code or self.preserves_computation
        ):
            return known.refusal
        if known.difference and self.preserves_computation:
            return Reason.DIFFERS(difference=known.difference)
        return None

    def _replacement(self, match: Match) -> Replacement:
        """Trace the replacement with the captured numbers."""
        names = names_of(self.replacement, match.pattern)
        plain = {name: value for name, value in match.captured.items() if _is_plain(value)}
        given = {own: plain[name] for own, name in names.items() if name in plain}
        graph, root, nodes = trace(self.replacement, list(names), given)
        return Replacement(graph, root, {node: names[own] for own, node in nodes.items()})


class OtherArgumentsError(ValueError):
    """Says that a replacement has other arguments than the pattern."""


def names_of(replacement: Callable[..., Any], pattern: Pattern) -> dict[str, str]:
    """Map the arguments of a replacement to those of the pattern."""
    order = _order_of(pattern)
    own = arguments_of(replacement, order)
    while len(own) > len(order) and own[-1].is_optional:
        own.pop()
    if {argument.name for argument in own} <= {*order}:
        return {argument.name: argument.name for argument in own}
    if len(own) != len(order):
        graph = trace(replacement, [argument.name for argument in own], {})[0]
        raise OtherArgumentsError(f"it takes {len(own)} and returns {len(outputs_of(graph))}")
    return {argument.name: name for argument, name in zip(own, order, strict=True)}


def _order_of(pattern: Pattern) -> list[str]:
    return [*(capture.name for capture in pattern.captures.values()), *pattern.absent]


def _is_plain(value: Any) -> bool:
    """Tell whether a captured value is passed to the replacement unchanged."""
    kept = (Node, Weight, AbsorbedTerms, Size)
    return not any(isinstance(each, kept) for each in pytree.tree_leaves(value))


def _current(value: Any, moved: dict[Node, Node]) -> Any:
    """Return a captured value, or its replacement by earlier rewrites."""
    if isinstance(value, AbsorbedTerms):
        return AbsorbedTerms(value.name, tuple(_current(each, moved) for each in value.values))
    if isinstance(value, tuple | list):
        return tuple(_current(each, moved) for each in value)
    while isinstance(value, Node) and value in moved:
        value = moved[value]
    return value


def _confirming(match: Match, facts: GraphFacts) -> Confirming:
    return Confirming(facts, match.nodes, match.roots, dict(match.captured), match.found.modules)


def _put(
    root: Node, result: Any, made: list[Node], results: tuple[Any, ...], edit: Editor, moved: dict[Node, Node]
) -> list[Node]:
    """Replace a node by a result; return the changed nodes."""
    if not isinstance(result, Node):
        raise TypeError(f"The replacement returns {type(result).__name__} in the place of {root.name}.")
    is_own = result in made and not result.users and results.count(result) == 1
    wants_layout = _is_contiguous(root) and not _is_contiguous(result) and "val" in result.meta
    # Readers may view the result, which was contiguous.
    if is_own and wants_layout and layout_matters(root, edit.graph_module):
        op, target, args, kwargs = contiguous_call(root, result)
        if len(results) == 1:
            edit.change(root, op=op, target=target, args=args, kwargs=kwargs)
            return [root]
        meta = place_of(root) | {"val": root.meta["val"]}
        result = edit.insert_before(result.next, op, target, args, kwargs, meta=meta)
        made.append(result)
    # Rewrite the root in place as the last call: its name and users are kept.
    if is_own and len(results) == 1 and result.next is root:
        meta = {"val": result.meta["val"]} if "val" in result.meta else {}
        op, target, args, kwargs = result.op, result.target, result.args, dict(result.kwargs)
        edit.erase(result)
        made.remove(result)
        edit.change(root, op=op, target=target, args=args, kwargs=kwargs, meta=meta)
        return [root]
    readers = edit.read_instead(root, result)
    edit.erase(root)
    moved[root] = result
    return [] if result in made else list(readers)


def _is_contiguous(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_contiguous()


def _erase(node: Node, edit: Editor) -> None:
    """Erase a node and its checks, unless it has other users."""
    for user in list(node.users):
        if is_guard(user) or (not user.users and getattr(user.target, "__name__", "") == "getitem"):
            edit.erase(user)
    if not node.users:
        edit.erase(node)
