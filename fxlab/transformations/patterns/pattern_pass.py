"""A pattern and what is put in its place, as a pass like fxlab's own."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.utils.matcher_utils import InternalMatch

from fxlab.checks import items_of
from fxlab.node_info import attribute_at, known_result, known_shape
from fxlab.operators import draws_random_numbers, may_alias, operator_of, written_arguments
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.aliasing_and_writes import written_inputs
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import why_not_the_same
from fxlab.transformations.analysis.strides import layout_matters
from fxlab.transformations.base import explanation
from fxlab.transformations.foreign.from_callable import check_callable, check_promises, name_of
from fxlab.transformations.patterns.calls import Weight
from fxlab.transformations.patterns.confirming import Confirmation, Confirming
from fxlab.transformations.patterns.matching import Found, GraphIndex, Joined, Matcher, Miss, Size, is_guard
from fxlab.transformations.patterns.pattern import Pattern, arguments_of, read_pattern, trace
from fxlab.transformations.patterns.replacing import Placing, Replacement
from fxlab.transformations.rewriting.dialects import contiguous_call
from fxlab.transformations.rewriting.dtype_checks import dtype_checks, move_dtype_checks, refuse_autocast
from fxlab.transformations.rewriting.editor import Editor, place_of
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

if TYPE_CHECKING:
    import pandas as pd

MatchFilter = Callable[[InternalMatch, Graph, Graph], bool]
_FEW = 5
"""Places that are told of where the pattern nearly matches nowhere."""
_VIEWS = frozenset({"reshape", "permute", "slice", "select", "unsqueeze", "expand"})


@dataclass(frozen=True, eq=False)
class Match:
    """A place at which a pattern matches; what conditions (``where``) are asked with.

    ``match["x"]`` is what the argument ``x`` has captured: a node, a number, a parameter or buffer of a
    module that is called, or ``None`` for an optional argument that is not there.
    """

    pattern: Pattern = field(repr=False)
    roots: tuple[Node, ...]
    """The results, which the replacement takes the place of."""
    nodes: tuple[Node, ...]
    """All nodes that the pattern stands for, in the order of the graph."""
    captured: Mapping[str, Any]
    found: Found = field(repr=False)
    index: GraphIndex = field(repr=False)
    excluded: Refusal | None = field(default=None, repr=False)
    """The condition that it does not meet."""
    moved: dict[Node, Node] = field(default_factory=dict, repr=False)
    """The nodes that earlier rewrites have put in the place of others."""

    def __getitem__(self, name: str) -> Any:
        """Return what an argument has captured."""
        if name not in self.captured:
            raise KeyError(f"The pattern has no argument {name!r}. It has: {', '.join(self.captured)}.")
        value = self.captured[name]
        if isinstance(value, Weight):
            return attribute_at(self.index.facts.graph_module, value.path)
        return value.value if isinstance(value, Size) else value

    def shape(self, name: str) -> tuple[Any, ...] | None:
        """Return the shape of what an argument has captured, if it is known."""
        value = self[name]
        return known_shape(value) if isinstance(value, Node) else getattr(value, "shape", None)

    def dtype(self, name: str) -> torch.dtype | None:
        """Return the dtype of what an argument has captured, if it is known."""
        value = self[name]
        return known_dtype(value) if isinstance(value, Node) else getattr(value, "dtype", None)

    @property
    def inner(self) -> list[Node]:
        """The nodes that are no results, last first."""
        return [node for node in reversed(self.nodes) if node not in self.roots]


@dataclass(frozen=True)
class Attempt:
    """The extent to which a pattern matches at one place."""

    refusal: Refusal | None
    words: str
    reached: int
    calls: int
    at: str
    begins_at: str

    @property
    def row(self) -> tuple[bool, str, str, int, int, str, str]:
        """Whether it matched, reason, code, calls that fit, all calls, the misfit and the last node."""
        code = "" if self.refusal is None else self.refusal.code
        is_whole = self.refusal is not None and self.reached == self.calls and not self.at
        words = str(self.refusal) if is_whole else self.words
        return self.refusal is None, words, code, self.reached, self.calls, self.at, self.begins_at


@dataclass(frozen=True, eq=False)
class PatternPass(RewritePass[Match]):
    """A pattern and its replacement; made by :func:`from_pattern`."""

    patterns: tuple[Callable[..., Any], ...]
    replacement: Callable[..., Any]
    where: Mapping[str, Callable[[Match], bool]]
    match_filters: tuple[MatchFilter, ...]
    ignore_literals: bool
    name: str
    preserves_computation: bool = False

    @property
    def description(self) -> str:
        """The docstring of the replacement or the pattern, or their names."""
        first = self.patterns[0]
        words = f"Replace {name_of(first)} by {name_of(self.replacement)}."
        return self.replacement.__doc__ or first.__doc__ or words

    @cached_property
    def _read(self) -> list[Pattern]:
        return [each for pattern in self.patterns for each in read_pattern(pattern)]

    @cached_property
    def _confirmed(self) -> dict[Any, Confirmation]:
        """The comparisons with the replacement, for each set of shapes."""
        return {}

    def match(self, facts: GraphFacts) -> Iterator[Match]:
        """Yield each place that the pattern matches, without those that overlap an earlier one."""
        yield from self._matched(facts, misses=False)[0]

    def _matched(self, facts: GraphFacts, *, misses: bool = True) -> tuple[list[Match], list[Miss]]:
        """Return the matches in the order of the graph, and where the pattern nearly matches."""
        index = GraphIndex.of(facts)
        found: dict[Node, tuple[Pattern, tuple[Node, ...], Found]] = {}
        missed: dict[Node, Miss] = {}
        matchers = []
        for pattern in self._read:
            matchers.append(matcher := Matcher(pattern, index, ignore_literals=self.ignore_literals))
            for roots, one in matcher.matches():
                found.setdefault(roots[0], (pattern, roots, one))
        taken, moved, matches = set[Node](), dict[Node, Node](), list[Match]()
        for pattern, roots, one in sorted(found.values(), key=lambda each: index.position[each[1][0]]):
            if taken.isdisjoint(one.nodes):
                taken.update(one.nodes)
                nodes = tuple(sorted(one.nodes, key=index.position.__getitem__))
                captured = {**dict.fromkeys(_order_of(pattern)), **one.captured}
                match = Match(pattern, roots, nodes, captured, one, index, moved=moved)
                matches.append(replace(match, excluded=self._why_excluded(match)))
        if not misses:
            return matches, []
        for miss in (each for matcher in matchers for each in matcher.misses):
            if miss.node not in missed or miss.share > missed[miss.node].share:
                missed[miss.node] = miss
        known = {node for miss in missed.values() if miss.is_near for node in miss.nodes} | taken
        for miss in (each for matcher in matchers for each in matcher.partial()):
            if miss.node not in known:
                missed[miss.node] = miss
        others = [miss for node, miss in missed.items() if node not in taken]
        return matches, sorted(others, key=lambda miss: (-miss.share, index.position[miss.node]))

    def refuse(self, candidate: Match, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read or write, what conditions exclude, and what is found to differ."""
        return (
            _why_used_elsewhere(candidate, facts)
            or _why_written(candidate, facts)
            or candidate.excluded
            or self._why_other_result(candidate, facts)
        )

    def behaves_by_mode(self, candidate: Match, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the calls of modules that do something else in training."""
        modes = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
        return tuple(node for node in candidate.nodes if isinstance(facts.module(node), modes))

    def describe(self, candidate: Match) -> str:
        """Say that the nodes go."""
        return "would be replaced"

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """Tell where the pattern matches, where it does not and why. Changes nothing.

        Returns
        -------
        pandas.DataFrame
            As of :meth:`RewritePass.explain`; places at which the pattern nearly matches follow the matches.
        """
        numbers = itertools.count()
        rows: list[tuple[str, bool, str, str, int]] = []
        missed: list[tuple[GraphFacts, Miss]] = []
        for facts in self._facts_of(graph_module):
            matches, misses = self._matched(facts)
            for match in matches:
                rows += self._rows(match, facts, next(numbers))
            missed += [(facts, miss) for miss in misses if miss.is_near]
        for facts, miss in missed:
            number = next(numbers)
            rows += [
                (f"{facts.prefix}{node.name}", False, miss.words, miss.refusal.code, number)
                for node in miss.nodes
            ]
        return explanation(rows)

    def attempts(self, graph_module: GraphModule, node: str | None = None) -> "list[Attempt]":
        """Return how far the pattern comes in a graph, or at a node of it, and what fails; furthest first.

        Parameters
        ----------
        graph_module
            The graph.
        node
            The name of a node; if left out, the places at which the pattern nearly matches.
        """
        found: list[Attempt] = []
        for facts in self._facts_of(graph_module):
            matches, misses = self._matched(facts)
            for match in matches:
                names = [f"{facts.prefix}{each.name}" for each in match.nodes]
                if node is None or node in names:
                    refusal = self.why_not(match, facts)
                    count = len(match.pattern.calls_in)
                    found.append(Attempt(refusal, self.describe(match), count, count, "", names[-1]))
            index = GraphIndex.of(facts)
            if node is not None and not found:
                misses = (
                    self._misses_at(node.removeprefix(facts.prefix), index)
                    if node.startswith(facts.prefix)
                    else []
                )
            elif node is None:
                misses = [miss for miss in misses if miss.is_near] or misses[:_FEW]
            else:
                misses = []
            for miss in misses:
                at = "" if miss.at is None else f"{facts.prefix}{miss.at.name}"
                begins = f"{facts.prefix}{miss.node.name}"
                found.append(Attempt(miss.refusal, miss.words, miss.reached, miss.calls, at, begins))
        return sorted(found, key=lambda each: -each.reached / max(each.calls, 1))

    def _misses_at(self, name: str, index: GraphIndex) -> list[Miss]:
        """Return how far the pattern comes at a node, from its last call or from one before."""
        node = next((each for each in index.position if each.name == name), None)
        if node is None:
            return []
        found: list[Miss] = []
        for pattern in self._read:
            matcher = Matcher(pattern, index, ignore_literals=self.ignore_literals)
            level, around = [node], {node: None}
            for _ in range(pattern.depth(pattern.outputs[0])):
                level = [user for each in level for user in index.readers(each) if user not in around]
                around.update(dict.fromkeys(level))
            list(matcher.matches(around))
            own = [miss for miss in matcher.misses if node in miss.nodes or node is miss.at]
            found += [*own, *matcher.partial([node])]
        best: dict[Node, Miss] = {}
        for miss in found:
            if miss.node not in best or miss.reached > best[miss.node].reached:
                best[miss.node] = miss
        return list(best.values())

    def rewrite(self, candidate: Match, edit: Editor) -> tuple[Node, ...]:
        """Put the replacement in the place of the match."""
        facts = candidate.index.facts
        replacement = self._replacement(candidate)
        moved = candidate.moved
        place = _place(candidate)
        assert isinstance(place, Node)
        placing = Placing(edit, facts, place, candidate.roots[0])
        given = {name: placing.argument(_current(value, moved)) for name, value in candidate.captured.items()}
        known = self._confirmed.get(_confirming(candidate, facts).key())
        if known is not None and known.differs_under_autocast:
            refuse_autocast(place, edit, self.name)
        checks = [check for root in candidate.roots for check in dtype_checks(root, candidate.inner)]
        if len(candidate.roots) == 1:
            move_dtype_checks(checks, candidate.roots[0], edit)
        results = placing.all(replacement, given, candidate.found.modules)
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

    def _why_excluded(self, match: Match) -> Refusal | None:
        for words, condition in self.where.items():
            if not condition(match):
                return Reason.CONDITION(condition=words)
        if self.match_filters:
            known = {node: value for node, value in match.found.of.items() if isinstance(value, Node)}
            arguments = {node: match.captured[each.name] for node, each in match.pattern.captures.items()}
            known |= {node: value for node, value in arguments.items() if isinstance(value, Node)}
            given = InternalMatch(
                anchors=[match.roots[0]],
                nodes_map=known,
                placeholder_nodes=list(arguments.values()),
                returning_nodes=list(match.roots),
            )
            graph = match.index.facts.graph_module.graph
            for match_filter in self.match_filters:
                if not match_filter(given, graph, match.pattern.graph):
                    return Reason.CONDITION(condition=name_of(match_filter))
        return None

    def _why_other_result(self, match: Match, facts: GraphFacts) -> Refusal | None:
        try:
            replacement = self._replacement(match)
        except Exception as error:  # the author's own code, with numbers that it was not written for
            return Reason.REPLACEMENT_FAILS(error=f"{type(error).__name__}: {str(error)[:200]}")
        if reason := _why_aliased(match, replacement, facts):
            return reason
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
        """Trace the replacement with the numbers that were captured."""
        names = _names_of(self.replacement, match.pattern)
        plain = {name: value for name, value in match.captured.items() if _is_plain(value)}
        given = {own: plain[name] for own, name in names.items() if name in plain}
        graph, root, nodes = trace(self.replacement, list(names), given)
        return Replacement(graph, root, {node: names[own] for own, node in nodes.items()})


def from_pattern(
    pattern: Callable[..., Any] | Iterable[Callable[..., Any]],
    replacement: Callable[..., Any],
    *,
    where: Mapping[str, Callable[[Match], bool]] | None = None,
    match_filters: Iterable[MatchFilter] = (),
    ignore_literals: bool = False,
    name: str | None = None,
    preserves_computation: bool = False,
) -> PatternPass:
    """Make a pass of a pattern and what to put in its place.

    A pattern is a function of eager torch, which is found in every dialect: ``F.linear`` is a module
    ``nn.Linear``, ``aten.linear`` and what it is decomposed to; terms of sums and products come in any order;
    casts to the same dtype, inactive dropouts and copies that nobody writes are seen through. A match is a
    candidate like that of any pass: one with other users inside, or whose inputs are written in between, is
    left alone, and :meth:`~fxlab.Transformation.explain` says so, and where the pattern nearly matches.

    Where shapes are known, the replacement is run in float64 on random numbers of these shapes, beside the
    nodes that it would replace. One that returns another shape or dtype is refused; one that returns other
    numbers as well, if it promises to preserve the computation.

    Parameters
    ----------
    pattern
        A function, a module or a graph module; or several of them, which have one replacement. An argument
        that is annotated ``float`` or ``int`` captures a number, ``torch.nn.Parameter`` a weight or buffer,
        ``torch.Tensor`` a tensor, and one without an annotation whatever stands there. One with the
        default ``None`` is optional. Other numbers are literal. A module in a pattern stands for all of its
        class, wherever they are and however they are set up. See :func:`fxlab.either` for alternatives.
    replacement
        A function of the same arguments, by name where it has the same names, else by place. What it
        computes of weights alone becomes a parameter of the graph.
    where
        Conditions, by the words that ``explain`` has for them: functions of a :class:`Match`.
    match_filters
        Functions of a match, the graph and the pattern's graph, as those of ``torch.fx.subgraph_rewriter``.
    ignore_literals
        Whether numbers in the pattern stand for any number.
    name
        A short name for people; made of those of the two functions if left out.
    preserves_computation
        Whether the replacement computes the same as the pattern, up to rounding.

    Raises
    ------
    TypeError
        If one of the two cannot be called, or a condition or filter cannot.
    ValueError
        If one of the two cannot be traced, they do not take and return as many values, or the pattern does
        not use an argument.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(lambda x: x.relu() * 3 + 1)
    >>> def relu(x, factor: float):
    ...     return factor * torch.relu(x)
    >>> def shifted(x, factor):
    ...     return torch.relu(x * factor)
    >>> transformation = from_pattern(relu, shifted)
    >>> transformation.explain(traced).index.tolist()
    ['relu', 'mul']
    >>> [str(node) for node in transformation.get_transformed_nodes(transformation(traced))]
    ['mul_1', 'mul']
    """
    filters = items_of(match_filters, "match_filters", "functions of a match and two graphs")
    check_promises(name, ignore_literals=ignore_literals, preserves_computation=preserves_computation)
    patterns = _patterns(pattern)
    check_callable(replacement, "replacement")
    for match_filter in filters:
        check_callable(match_filter, "match_filters")
    conditions = {} if where is None else where
    if not isinstance(conditions, Mapping):
        raise TypeError(
            f"where: expected a mapping of words to functions of a match, got {type(where).__name__}."
        )
    for words, condition in conditions.items():
        if not isinstance(words, str):
            raise TypeError(f"where: expected words as keys, got {words!r}.")
        check_callable(condition, f"where[{words!r}]")
    for each in patterns:
        _check(each, replacement)
    name = name or f"{name_of(patterns[0])}-to-{name_of(replacement)}"
    return PatternPass(
        patterns, replacement, dict(conditions), filters, ignore_literals, name, preserves_computation
    )


def find_matches(
    graph_module: GraphModule,
    pattern: Callable[..., Any] | Iterable[Callable[..., Any]],
    *,
    where: Mapping[str, Callable[[Match], bool]] | None = None,
    ignore_literals: bool = False,
) -> list[Match]:
    """Find the places that a pattern matches, as :func:`from_pattern` reads it; nothing is replaced.

    Parameters
    ----------
    graph_module
        The graph; bodies of higher-order operators are looked through as well.
    pattern, where, ignore_literals
        As of :func:`from_pattern`.

    Returns
    -------
    list of Match
        In the order of the graph, without those that overlap an earlier one.

    Raises
    ------
    TypeError
        If the graph module is none, or the pattern cannot be called.
    ValueError
        If the pattern cannot be traced.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x * 3) + torch.relu(2 * x))
    >>> def scaled(x, factor: float):
    ...     return torch.relu(x * factor)
    >>> [(match.roots, match["factor"]) for match in find_matches(traced, scaled)]
    [((relu,), 3), ((relu_1,), 2)]
    """
    patterns = _patterns(pattern)
    for each in patterns:
        _read_checked(each)
    conditions = dict(where or {})
    finding = PatternPass(patterns, patterns[0], conditions, (), ignore_literals, "find-matches")
    found = (match for facts in finding._facts_of(graph_module) for match in finding.match(facts))
    return [match for match in found if match.excluded is None]


def _patterns(pattern: Any) -> tuple[Callable[..., Any], ...]:
    """Return patterns, given as one or several."""
    patterns = tuple(pattern) if isinstance(pattern, list | tuple) else (pattern,)
    if not patterns:
        raise ValueError("pattern: expected one pattern or more, got an empty list.")
    for each in patterns:
        check_callable(each, "pattern")
    return patterns


def _read_checked(pattern: Callable[..., Any]) -> list[Pattern]:
    """Trace a pattern, or say why it is none."""
    try:
        read = read_pattern(pattern)
    except Exception as error:  # tracing runs the function
        raise ValueError(f"pattern: {name_of(pattern)} cannot be traced: {error}") from error
    for one in read:
        if unused := one.unused:
            raise ValueError(
                f"pattern: {name_of(pattern)} does not use its argument {unused[0]!r}. Leave it out."
            )
        if not all(isinstance(value, Node) and value.op.startswith("call_") for value in one.outputs):
            raise ValueError(
                f"pattern: {name_of(pattern)} must return what it computes, not an argument or a number."
            )
    return read


def _check(pattern: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Refuse a pattern and a replacement that do not belong together."""
    read = _read_checked(pattern)
    takes, returns = len(read[0].captures) + len(read[0].absent), len(read[0].outputs)
    choices = [(one, one.absent) for one in read]
    choices += [(one, (*one.absent, *one.perhaps_absent)) for one in read if one.perhaps_absent]
    for one, absent in choices:
        try:
            names = _names_of(replacement, one)
            samples: dict[str, Any] = {
                c.name: 2 if c.is_whole else 2.0 for c in one.captures.values() if c.kind == "number"
            }
            samples |= dict.fromkeys(absent)
            given = {own: samples[name] for own, name in names.items() if name in samples}
            graph, root, _ = trace(replacement, list(names), given)
        except _OtherArgumentsError as error:
            raise ValueError(
                f"replacement: expected to take {takes} and return {returns} values, as pattern does, "
                f"but {error}."
            ) from error
        except Exception as error:
            words = f", where {', '.join(absent)} is None" if absent else ""
            raise ValueError(
                f"replacement: {name_of(replacement)} cannot be traced{words}: {error}"
            ) from error
        traced = Replacement(graph, root, {})
        for node in traced.calls:
            written = [] if operator_of(node) is None else written_arguments(node)
            if any(map(_is_argument, written)):
                raise ValueError(
                    f"replacement: {name_of(replacement)} writes an argument in place ({node.name}), which "
                    "others may read. Write a new tensor."
                )
        also = len(traced.outputs)
        if also != returns:
            raise ValueError(
                f"replacement: expected to take {takes} and return {returns} values, as pattern does, "
                f"but it takes {len(arguments_of(replacement))} and returns {also}."
            )


def _is_argument(value: Node) -> bool:
    """Tell whether a value is an argument of a replacement, or may be a view of one."""
    if value.op == "placeholder":
        return True
    return (
        may_alias(value) and any(map(_is_argument, value.all_input_nodes))
        if value.op != "get_attr"
        else False
    )


class _OtherArgumentsError(ValueError):
    pass


def _names_of(replacement: Callable[..., Any], pattern: Pattern) -> dict[str, str]:
    """Return the arguments of the pattern that those of a replacement stand for."""
    own = arguments_of(replacement)
    order = _order_of(pattern)
    if {argument.name for argument in own} <= {*order}:
        return {argument.name: argument.name for argument in own}
    if len(own) != len(order):
        returned = "" if len(own) == len(order) else f"it takes {len(own)}"
        graph = trace(replacement, [argument.name for argument in own], {})[0]
        returned += f" and returns {len(Replacement(graph, nn.Module(), {}).outputs)}"
        raise _OtherArgumentsError(returned)
    return {argument.name: name for argument, name in zip(own, order, strict=True)}


def _order_of(pattern: Pattern) -> list[str]:
    return [*(capture.name for capture in pattern.captures.values()), *pattern.absent]


def _is_plain(value: Any) -> bool:
    """Tell whether a captured value is given to the replacement as it is."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return not isinstance(value, Node | Weight | Joined | Size)


def _current(value: Any, moved: dict[Node, Node]) -> Any:
    """Return a captured value, with what earlier rewrites have put in its place."""
    if isinstance(value, Joined):
        return Joined(value.name, tuple(_current(each, moved) for each in value.values))
    if isinstance(value, tuple | list):
        return tuple(_current(each, moved) for each in value)
    while isinstance(value, Node) and value in moved:
        value = moved[value]
    return value


def _confirming(match: Match, facts: GraphFacts) -> Confirming:
    return Confirming(facts, match.nodes, match.roots, dict(match.captured), match.found.modules)


def _stays(node: Node, match: Match) -> bool:
    """Tell whether a node is left for its other users: a constant, or a view of what stays as well."""
    term = match.index.calls.term(node)
    if not node.all_input_nodes:  # a constant
        return True
    if term is None or not (term.name in _VIEWS or term.is_transparent):
        return False
    inside = [value for value in node.all_input_nodes if value in match.found.nodes]
    return all(_stays(value, match) for value in inside)


def _why_used_elsewhere(match: Match, facts: GraphFacts) -> Refusal | None:
    own = {*match.nodes}
    for node in match.inner:
        others = [user for user in match.index.readers(node) if user not in own]
        if others and not _stays(node, match):
            return Reason.OTHER_USERS(value=node.name)
        if facts.writes.is_written(node) and not _is_written_inside(node, match, facts):
            return Reason.WRITTEN_IN_PLACE(value=node.name)
        if getattr(node.target, "__name__", str(node.target)).startswith("detach"):
            value = known_result(node.all_input_nodes[0]) if node.all_input_nodes else None
            if getattr(value, "requires_grad", True) is not False:
                return Reason.DETACHED(value=node.name)
    return None


def _is_written_inside(node: Node, match: Match, facts: GraphFacts) -> bool:
    """Tell whether a value that is written is new in the match, and read by nothing else."""
    own = {*match.nodes}
    is_own = all(user in own for user in match.index.readers(node))
    outside = {value for each in own for value in each.all_input_nodes} - own
    return is_own and not any(facts.writes.may_share_memory(node, value) for value in outside)


def _place(match: Match) -> Node | Refusal:
    """Return the node before which the replacement is computed, or why there is none."""
    if len(match.roots) == 1:
        return match.roots[0]
    position = match.index.position
    own = {*match.nodes}
    last = max(match.roots, key=position.__getitem__)
    users = [user for root in match.roots for user in root.users if user not in own]
    early = min(users, key=position.__getitem__, default=None)
    if early is None or position[early] > position[last]:
        return last
    for value in match.captured.values():
        for node in _nodes_of(value):
            if position[node] > position[early]:
                return Reason.OTHER_ORDER(value=node.name, user=early.name)
    return early


def _nodes_of(value: Any) -> list[Node]:
    if isinstance(value, Joined):
        return [node for each in value.values for node in _nodes_of(each)]
    if isinstance(value, tuple | list):
        return [node for each in value for node in _nodes_of(each)]
    if isinstance(value, Size):
        return [value.node]
    return [value] if isinstance(value, Node) else []


def _why_written(match: Match, facts: GraphFacts) -> Refusal | None:
    """Return why what the match reads is not the same where the replacement would read it."""
    place = _place(match)
    if isinstance(place, Refusal):
        return place
    own = [*match.nodes]
    for node in own:
        if any(value not in match.found.nodes for value in written_inputs(node, facts.graph_module)):
            return Reason.MAY_WRITE_INPUTS()
    for value in dict.fromkeys(each for given in match.captured.values() for each in _nodes_of(given)):
        readers = [node for node in own if value in node.all_input_nodes]
        first = min(readers, key=match.index.position.__getitem__, default=match.nodes[0])
        for last in {place, match.nodes[-1]}:
            early, late = sorted((first, last), key=match.index.position.__getitem__)
            if reason := why_not_the_same({value: early}, late, facts.writes):
                return reason
    weights = [match[name] for name, value in match.captured.items() if isinstance(value, Weight)]
    return Reason.STATE_WRITTEN() if any(map(facts.writes.is_tensor_written, weights)) else None


def _why_aliased(match: Match, replacement: Replacement, facts: GraphFacts) -> Refusal | None:
    """Return why a result must stay a new tensor, or one of an input."""
    for root, output in zip(match.roots, replacement.outputs, strict=True):
        name = replacement.passed_on(output)
        values = _nodes_of(match.captured.get(name)) if name else []
        if values and isinstance(output, Node) and output.op == "placeholder":
            same = all(facts.writes.may_share_memory(root, value) for value in values)
            if not same and facts.writes.is_returned(root):
                return Reason.RETURNED()
        for value in values:
            if not facts.writes.may_share_memory(root, value) and (
                facts.writes.is_written(root) or facts.writes.is_written(value)
            ):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        captured = [node for given in match.captured.values() for node in _nodes_of(given)]
        if not values and facts.writes.is_written(root):
            shared = next((node for node in captured if facts.writes.may_share_memory(root, node)), None)
            if shared is not None:
                return Reason.WRITTEN_IN_PLACE(value=root.name)
    return None


def _put(
    root: Node, result: Any, made: list[Node], results: tuple[Any, ...], edit: Editor, moved: dict[Node, Node]
) -> list[Node]:
    """Let a result take the place of a node, and return the nodes that were changed."""
    if not isinstance(result, Node):
        raise TypeError(f"The replacement returns {type(result).__name__} in the place of {root.name}.")
    is_own = result in made and not result.users and results.count(result) == 1
    wants_layout = _is_contiguous(root) and not _is_contiguous(result) and "val" in result.meta
    if is_own and wants_layout and layout_matters(root, edit.graph_module):
        op, target, args, kwargs = contiguous_call(root, result)
        if len(results) == 1:
            edit.change(root, op=op, target=target, args=args, kwargs=kwargs)
            return [root]
        meta = place_of(root) | {"val": root.meta["val"]}
        result = edit.insert_before(result.next, op, target, args, kwargs, meta=meta)
        made.append(result)
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
    """Erase a node with what only checks it, unless somebody else reads it."""
    for user in list(node.users):
        if is_guard(user) or (not user.users and getattr(user.target, "__name__", "") == "getitem"):
            edit.erase(user)
    if not node.users:
        edit.erase(node)
