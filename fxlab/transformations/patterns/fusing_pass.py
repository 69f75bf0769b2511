"""The base of passes that compute by one function what is written as arithmetic: activations and norms."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import OpOverload
from fxlab.operators import computed_by, computes, is_aten, told_dtype
from fxlab.operators.node_info import dtype_name
from fxlab.transformations.analysis.aliasing_and_writes import (
    first_readers,
    why_not_the_same,
    why_of_use_elsewhere,
)
from fxlab.transformations.analysis.dtypes_and_sizes import is_cast, known_dtype, uncast
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed_dtypes
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.calls.term import Term
from fxlab.transformations.patterns.captured import PartialMatch
from fxlab.transformations.patterns.matching import Matcher
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import read_once
from fxlab.transformations.rewriting.autocast import refuse_autocast
from fxlab.transformations.rewriting.dtype_checks import (
    all_dtype_checks,
    dtype_checks,
    is_dtype_checked,
    move_dtype_checks,
)
from fxlab.transformations.rewriting.editor import Editor

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_GOES_ON = frozenset({"mul", "div", "add", "neg", "reciprocal"})
"""Arithmetic between the characteristic operator of a pattern and its result."""
_STEPS = 5
Call = tuple[Callable[..., Any], OpOverload, tuple[Any, ...], dict[str, Any]]
"""A function, the same in exported graphs, and its arguments."""


@dataclass(frozen=True)
class Written:
    """Arithmetic that one function computes."""

    pattern: Callable[..., Any]
    """The pattern."""
    node: Node
    """The last node, which becomes the call."""
    captured: Mapping[str, Any]
    """The values that the arguments of the pattern stand for; ``x`` before casts."""
    value: Node
    """The argument of the function: ``x``, or a cast of it."""
    casts: tuple[Node, ...]
    """Casts of ``x`` that the arithmetic reads, which others may read as well."""
    inner: tuple[Node, ...]
    """The nodes to erase, besides these casts."""
    checks: tuple[Node, ...] = ()
    """Nodes that check the dtype of values in between."""

    @property
    def read(self) -> tuple[Node, ...]:
        """The tensors among the function's arguments."""
        others = (each for name, each in self.captured.items() if name != "x" and isinstance(each, Node))
        return (self.value, *others)


@dataclass(frozen=True, eq=False)
class FusingPass(MatchingPass[Written]):
    """Replaces arithmetic of ``x``, the first argument of each pattern, by one function."""

    only_casts: ClassVar = True
    left_to_others: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Patterns that another pass fuses, though they are among those of this one."""

    @abstractmethod
    def call(self, candidate: Written) -> Call:
        """Return the call that the last node becomes."""

    @abstractmethod
    def why_other(self, candidate: Written) -> Refusal | None:
        """Return why the function computes something else; ``None`` if it does not."""

    @abstractmethod
    def why_no_autocast(self, candidate: Written) -> str | None:
        """Return why the graph must not run under autocast, in words that follow its name."""

    def is_core(self, term: Term) -> bool:
        """Tell whether a call of one of the operators in :attr:`around` may be that of a pattern."""
        return True

    def match(self, facts: GraphFacts) -> Iterator[Written]:
        """Yield the largest arithmetic that fits, or else the smallest, in the order of the graph."""
        index = GraphIndex(facts, only_casts=self.only_casts)
        patterns = [(each, read_once(each)[0]) for each in self.looks_for]
        matchers = [(each, pattern.names, Matcher(pattern, index)) for each, pattern in patterns]
        others = [Matcher(read_once(each)[0], index) for each in self.left_to_others]
        fitting, refused, taken = list[Written](), list[Written](), set[Node]()
        for node, names in self._places(index).items():
            likely = [] if node in taken else [(p, m) for p, own, m in matchers if not own.isdisjoint(names)]
            found = [(pattern, one) for pattern, matcher in likely for _, one in matcher.matches([node])]
            if not found:
                continue
            if left := [one for other in others for _, one in other.matches([node])]:
                taken.update(*(one.nodes for one in left))
                continue
            tried = [each for pattern, one in found for each in _readings(pattern, node, one)]
            fits = next(filter(self._fits, tried), None)
            if fits is not None:
                fitting.append(fits)
                taken.update((node, *fits.inner))
            else:
                refused += tried[:1]
        for each in reversed(refused):
            if taken.isdisjoint((each.node, *each.inner)):
                fitting.append(each)
                taken.update((each.node, *each.inner))
        return iter(sorted(fitting, key=lambda each: index.position[each.node]))

    def _places(self, index: GraphIndex) -> dict[Node, set[str]]:
        """Return the arithmetic downstream of operators of the patterns, last first, and their names."""
        names: dict[Node, set[str]] = {}
        for node in index.position:
            term = index.calls.term(node) if computed_by(node) in self.around else None
            if term is not None and self.is_core(term):
                names[node] = {term.name}
        level, found = list(names), set[Node]()
        for _ in range(_STEPS):
            users = dict.fromkeys((node, user) for node in level for user in node.users)
            level = []
            for node, user in users:
                if computed_by(user) in _GOES_ON or is_cast(user):
                    known = names.setdefault(user, set())
                    if not names[node] <= known:
                        known |= names[node]
                        level.append(user)
            found.update(level)
        places = sorted(found, key=index.position.__getitem__, reverse=True)
        return {node: names[node] for node in places}

    def _fits(self, candidate: Written) -> bool:
        """Tell whether a candidate fits, by its nodes alone."""
        own = {candidate.node, *candidate.inner, *candidate.checks}
        is_alone = all(own.issuperset(each.users) for each in candidate.inner)
        return is_alone and self._why_unlike(candidate) is None

    def _why_unlike(self, candidate: Written) -> Refusal | None:
        given, between = (*candidate.read, candidate.node), (*candidate.casts, *candidate.inner)
        return self.why_other(candidate) or why_dtypes_differ(given, between)

    def refuse(self, candidate: Written, facts: GraphFacts) -> Refusal | None:
        """Refuse other readers, writes in between, and computations that the function does otherwise."""
        node, own = candidate.node, {candidate.node, *candidate.inner, *candidate.checks}
        if reason := self._why_unlike(candidate) or why_of_use_elsewhere(candidate.inner, own, facts.writes):
            return reason
        readers = first_readers((candidate.captured["x"], *candidate.read), (*own, *candidate.casts))
        if reason := why_not_the_same(readers, node, facts.writes):
            return reason
        reader = facts.rounding_readers.get(node)
        return None if reader is None else Reason.ROUNDED_LATER(reader=reader.name)

    def describe(self, candidate: Written) -> str:
        """Tell how many nodes become one."""
        name = self.call(candidate)[1]._schema.name.partition("::")[2]
        return f"{len(candidate.inner) + 1} nodes become {name}"

    def rewrite(self, candidate: Written, edit: Editor) -> Node:
        """Make the last node call the function, and erase the nodes that only it used."""
        node = candidate.node
        function, overload, args, kwargs = self.call(candidate)
        because = self.why_no_autocast(candidate)
        is_told = told_dtype(candidate.value) is not None or is_dtype_checked(candidate.value)
        if because is not None and not is_told:
            refuse_autocast(node, edit, type(self).__name__, because)
        target: Any = overload if is_aten(node) else function
        edit.change(node, op="call_function", target=target, args=args, kwargs=kwargs)
        moved = dtype_checks(node, candidate.inner)
        move_dtype_checks(moved, node, edit)
        gone = [each for each in candidate.checks if each not in moved]
        for each in (*gone, *sorted(candidate.inner, reverse=True)):
            edit.erase(each)
        for cast in candidate.casts:
            if not cast.users:
                edit.erase(cast)
        return node


def _readings(pattern: Callable[..., Any], node: Node, found: PartialMatch) -> Iterator[Written]:
    """Yield a match with each value that the function may be given: casts of ``x``, and ``x``."""
    x, outer = uncast(found.captured["x"])
    if not isinstance(x, Node) or type(found.captured.get("eps", 0.0)) not in (int, float):
        return
    casts = dict.fromkeys((*outer, *(each for each in found.nodes if is_cast(each) and uncast(each)[0] is x)))
    inner = tuple(sorted(each for each in found.nodes if each not in casts and each is not node))
    for value in (*casts, x):
        # The dtype of the value, if it is checked, decides those of inner values.
        is_checked = is_dtype_checked(value)
        checks = all_dtype_checks(inner) if is_checked else dtype_checks(node, inner)
        yield Written(pattern, node, {**found.captured, "x": x}, value, tuple(casts), inner, checks)


def why_dtypes_differ(given: Iterable[Node], inner: Iterable[Node]) -> Refusal | None:
    """Return why dtypes differ; ``None`` if they do not, or those in between are more precise."""
    dtypes = {node: known_dtype(node) for node in given}
    between = {node: known_dtype(node) for node in inner if computes(node) != "var_mean"}
    unknown = next((node for node, dtype in (dtypes | between).items() if dtype is None), None)
    if unknown is not None:
        return Reason.UNKNOWN_DTYPE(value=unknown.name)
    if reason := why_mixed_dtypes(dtypes.values()):
        return reason
    dtype = next(iter(dtypes.values()))
    for node, other in (dtypes | between).items():
        if other not in _DTYPES or dtype not in _DTYPES or torch.finfo(other).eps > torch.finfo(dtype).eps:
            return Reason.DTYPE(value=node.name, dtype=dtype_name(other))
    return None
