"""Places at which a pattern matches, and how far it gets elsewhere."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators.node_info import attribute_at, known_result
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.calls.arguments import Weight, from_start, is_number
from fxlab.transformations.calls.calls import Term
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.captured import (
    AbsorbedTerms,
    CallInPlaceOfModule,
    Size,
    has_nodes,
    is_same_number,
    number_of,
    text_of,
)
from fxlab.transformations.patterns.pattern import ANY, NUMBER, TENSOR, WEIGHT, Capture, Pattern

_COMMUTATIVE = ("add", "mul")
_ALSO_CALLED = frozenset({
    ("transpose", "permute"), ("silu", "mul"), ("mul", "pow"), ("flatten", "reshape"), ("reshape", "flatten"),
})  # fmt: skip
"""Calls of a pattern, and those of a graph that may compute the same."""
_MOST_STEPS = 4000
"""The most comparisons at one node, so that a pattern with many orders ends."""
_MOST_ABSORBED = 6
"""The most terms of a sum or a product that one argument stands for."""
_NO_NUMBERS = (torch.dtype, torch.device, torch.Size)
_DIMENSIONS = ("dim", "dims", "start_dim", "end_dim")


def _names_in_graphs(term: Term) -> set[str]:
    return {term.name, *(other for own, other in _ALSO_CALLED if own == term.name)}


@dataclass
class PartialMatch:
    """A match, or the part of one found so far."""

    captured: dict[str, Any] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    """The nodes that compute it, in the order in which they were found."""
    of: dict[Node, Any] = field(default_factory=dict)
    """The values for the nodes of the pattern."""
    reached: int = 0
    modules: dict[str, str | CallInPlaceOfModule] = field(default_factory=dict)
    """The paths of modules, or the calls that compute the same, by their paths in the pattern."""
    open: tuple[tuple[Node | Term, Any], ...] = ()
    """Numbers to be compared once all arguments are known."""

    def with_values(self, **values: Any) -> "PartialMatch":
        """Return a copy with other values, in a tenth of the time of ``dataclasses.replace``."""
        made = PartialMatch.__new__(PartialMatch)
        vars(made).update(vars(self), **values)
        return made


@dataclass(frozen=True)
class NearMiss:
    """A place at which a pattern nearly matches."""

    node: Node
    nodes: tuple[Node, ...]
    reached: int
    calls: int
    refusal: Refusal
    at: Node | None

    @property
    def share(self) -> float:
        """The share of the calls that fit."""
        return self.reached / max(self.calls, 1)

    @property
    def is_near(self) -> bool:
        """Whether more than half of the calls fit, or half if the others are called with other arguments."""
        is_half = self.share == 0.5 and self.refusal.code != Reason.OTHER_OPERATOR.code
        return self.share > 0.5 or is_half

    @property
    def words(self) -> str:
        """The number of calls that fit, and the misfit."""
        is_whole = self.reached == self.calls and self.at is None
        if is_whole or (self.calls == 1 and not self.reached):
            return self.refusal.words
        return f"{self.reached} of {self.calls} calls fit; {self.refusal.words}"


class Matcher:
    """The matches of one pattern in one graph.

    ``explains``: whether :attr:`misses` are needed, so that the parts after a misfit are compared as well.
    """

    def __init__(
        self, pattern: Pattern, index: GraphIndex, *, ignore_literals: bool = False, explains: bool = False
    ) -> None:
        self._pattern, self._index, self._ignore_literals = pattern, index, ignore_literals
        self._explains = explains
        self._latest: tuple[Any, Reason, dict[str, Any]] | None = None
        self._calls = index.calls
        self._misses: dict[Node, NearMiss] = {}
        self._begin: Node | None = None
        self._steps = 0

    def levels_to_result(self, node: Node) -> int:
        """Return how many calls may lie between a node and the pattern's result, with some for copies."""
        name = getattr(self._calls.term(node), "name", None)
        terms = {each: self._pattern.term(each) for each in self._pattern.calls_in}
        level = [each for each, term in terms.items() if term is not None and term.name == name]
        levels = 0
        while level:
            level = list({user for each in level for user in each.users if user.op != "output"})
            levels += 1
        most = self._pattern.depth(self._pattern.outputs[0])
        return min(levels + 1, most) if levels else most

    def matches(self, at: Iterable[Node] | None = None) -> Iterator[tuple[tuple[Node, ...], PartialMatch]]:
        """Yield the results of each match, and the match."""
        first, *others = self._pattern.outputs
        for node in self._beginnings(first) if at is None else at:
            self._begin, self._steps = node, 0
            for alternative in self._pattern.alternatives(first):
                found = self._first(alternative, node, others)
                if found is not None:
                    yield found
                    break

    def partial(self, at: Iterable[Node] | None = None) -> Iterator[NearMiss]:
        """Yield places at which a part of the pattern matches, and something else reads its result."""
        total = self._pattern.total
        parts = self._pattern.parts if at is not None else self._pattern.parts[:1]
        for part, reader in parts:
            term, above = self._pattern.term(part), self._pattern.term(reader)
            if term is None or above is None or (at is None and self._pattern.size(part) < total / 2):
                continue
            for node in self._beginnings(part) if at is None else at:
                self._begin, self._steps = None, 0
                found = next(self._root(part, node, PartialMatch()), None)
                if found is None:
                    continue
                user, words = node, "read by nothing"
                if users := self._index.readers(node):
                    user, read = users[0], self._calls.term(users[0])
                    if read is not None and self._is_called(above, read):
                        continue  # the misfit is another operand of that
                    name = str(getattr(user.target, "__name__", user.target))
                    words = name if read is None else read.called
                refusal = Reason.OTHER_OPERATOR(value=user.name, called=words, expected=above.called)
                own = tuple(sorted(found.nodes, key=self._index.position.__getitem__))
                yield NearMiss(node, own, min(found.reached, total - 1), total, refusal, user)

    @property
    def misses(self) -> list[NearMiss]:
        """The nodes at which a match began and failed, and how far it got."""
        return list(self._misses.values())

    def _first(
        self, first: Any, node: Node, others: Sequence[Any]
    ) -> tuple[tuple[Node, ...], PartialMatch] | None:
        for found in self._root(first, node, PartialMatch()):
            for roots, whole in self._others(others, (node,), found):
                for complete in self._closed(whole):
                    inside = complete.nodes.keys() - {*roots}
                    nodes = [value for value in complete.captured.values() if isinstance(value, Node)]
                    kept = next((node for node in nodes if node in inside), None)
                    if kept is None:
                        self._misses.pop(node, None)
                        return roots, complete
                    self._fail(complete, kept, Reason.CAPTURED_INSIDE, value=kept.name)
        return None

    def _beginnings(self, first: Any) -> list[Node]:
        terms = list(filter(None, map(self._pattern.term, self._pattern.alternatives(first))))
        casts = (self._pattern.term(term.args["self"]) for term in terms if term.name == "to")
        terms += filter(None, casts)
        names = {name for term in terms for name in _names_in_graphs(term)}
        found = {node for name in names for node in self._index.by_name[name]}
        return sorted(found, key=self._index.position.__getitem__)

    def _others(
        self, outputs: Sequence[Any], roots: tuple[Node, ...], found: PartialMatch
    ) -> Iterator[tuple[tuple[Node, ...], PartialMatch]]:
        """Find the other results, among readers of values captured already."""
        if not outputs:
            yield roots, found
            return
        output, *rest = outputs
        alike = self._is_alike(output)
        for node in self._near(output, found):
            is_later = self._index.position[node] > self._index.position[roots[-1]]
            is_inner = node in found.nodes and node is not found.of.get(output)
            if is_inner or (alike and not is_later):
                continue
            for more in self._root(output, node, found):
                yield from self._others(rest, (*roots, node), more)

    def _is_alike(self, output: Any) -> bool:
        """Tell whether a result calls the same operator as the first, so that the graph orders them."""
        terms = [self._pattern.term(value) for value in (self._pattern.outputs[0], output)]
        return all(terms) and len({term.name for term in terms if term}) == 1

    def _near(self, output: Any, found: PartialMatch) -> list[Node]:
        if isinstance(output, Node) and output in found.of:
            known = found.of[output]
            return [known] if isinstance(known, Node) else []
        term = self._pattern.term(output)
        if term is None:
            return []
        names = _names_in_graphs(term)
        reached: dict[Node, None] = {}
        level = [value for value in (*found.captured.values(), *found.nodes) if isinstance(value, Node)]
        level = [value for value in level if value.op != "get_attr"]
        starts = [
            each for value in level for each in self._calls.seen_through(value) if isinstance(each, Node)
        ]
        level = list(dict.fromkeys(starts))
        for _ in range(self._pattern.depth(output) + 3):
            level = [user for node in level for user in node.users if user not in reached]
            reached.update(dict.fromkeys(level))
        hits = [node for node in reached if (t := self._calls.term(node)) and t.name in names]
        return sorted(hits, key=self._index.position.__getitem__)

    def _root(self, value: Any, node: Node, found: PartialMatch) -> Iterator[PartialMatch]:
        """Match a result: copies, which are seen through elsewhere, stand for themselves here."""
        term, given = self._pattern.term(value), self._calls.term(node)
        if isinstance(value, Node) and value in found.of:
            if self._index.key(found.of[value]) == self._index.key(node):
                yield found
            return
        if term is None or given is None:
            return
        dtype = self._calls.dtype(node)
        if term.name == "to" != given.name and dtype is not None:  # the graph omits the cast to its own dtype
            for more in self._value(term.args["dtype"], dtype, found):
                yield from self._root(term.args["self"], node, more)
            return
        for more in self._term(term, given, node, found):
            if isinstance(value, Node):
                more = more.with_values(of={**more.of, value: node})
            yield more

    def _value(self, value: Any, given: Any, found: PartialMatch) -> Iterator[PartialMatch]:
        """Match a value of the pattern with one of the graph."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return
        if isinstance(value, Weight):
            yield from self._bind(Capture(value.path, WEIGHT), given, found)
        elif isinstance(value, Term):
            yield from self._call(value, given, found, None)
        elif isinstance(value, Node):
            yield from self._node(value, given, found)
        elif isinstance(value, tuple | list):
            if not isinstance(given, tuple | list) or len(given) != len(value):
                self._misfit(found, None, "a list", given, value)
                return
            level = [found]
            for each, other in zip(value, given, strict=True):
                level = [more for one in level for more in itertools.islice(self._value(each, other, one), 8)]
            yield from level
        elif self._is_literal(value, given):
            yield found
        else:
            self._misfit(found, None, "an argument", given, value)

    def _node(self, value: Node, given: Any, found: PartialMatch) -> Iterator[PartialMatch]:
        pattern = self._pattern
        if value.op == "placeholder":
            yield from self._bind(pattern.captures[value], given, found)
        elif value in pattern.scalars:
            yield from self._computed(value, given, found)
        elif pattern.is_either(value):
            for each in pattern.alternatives(value):
                for more in self._value(each, given, found):
                    yield more.with_values(of={**more.of, value: given})
        elif value.op == "get_attr":
            if self._is_constant(value, given):
                yield found
            else:
                self._misfit(found, None, "a constant", given, value.name)
        elif value in found.of:
            if self._index.key(found.of[value]) == self._index.key(given):
                yield found
            else:
                self._fail(found, None, Reason.OTHER_VALUE, value=given, expected=found.of[value])
        elif (term := pattern.term(value)) is not None:
            yield from self._call(term, given, found, value)

    def _call(self, term: Term, given: Any, found: PartialMatch, node: Node | None) -> Iterator[PartialMatch]:
        """Match a call of the pattern with a value, past calls that only pass it on."""

        def noted(more: PartialMatch) -> PartialMatch:
            return more if node is None else more.with_values(of={**more.of, node: given})

        divisor = self._pattern.divisor(term)
        if divisor is not None and is_number(given) and given:
            for more in self._value(divisor, 1 / given, found):
                yield noted(more)
            return
        if self._pattern.is_computed(term):
            yield from map(noted, self._computed(term, given, found))
            return
        skipped: list[Node] = []
        nearest = None
        for value in self._calls.seen_through(given):
            other = self._calls.term(value)
            nearest = other if nearest is None or (other and nearest.is_transparent) else nearest
            if other is not None and self._is_called(term, other):
                own = dict.fromkeys(skipped)
                for more in self._term(term, other, value, found.with_values(nodes={**found.nodes, **own})):
                    yield noted(more)
                if not other.is_transparent or other.name == term.name:
                    return
            if isinstance(value, Node):
                skipped.append(value)
        if term.is_transparent:
            yield from self._value(term.args["self"], given, found)
            return
        dtype = self._calls.dtype(given)
        if (
            term.name == "to" and dtype is not None
        ):  # a cast to the dtype that is there, which the graph omits
            is_cast, before = False, self._latest
            for more in self._value(term.args["dtype"], dtype, found):
                is_cast = True
                yield from map(noted, self._value(term.args["self"], given, more))
            if is_cast:
                return
            self._latest = before
        words = "an input" if nearest is None else nearest.called
        at = given if isinstance(given, Node) else None
        if nearest is None and at is not None and at.op.startswith("call"):
            words = str(getattr(at.target, "__name__", at.target))
        self._fail(found, at, Reason.OTHER_OPERATOR, value=given, called=words, expected=term.called)

    def _is_called(self, term: Term, other: Term) -> bool:
        if term.name == other.name:
            return True
        return (term.name, other.name) in _ALSO_CALLED and (
            other.name != "pow" or other.args["exponent"] == 2
        )

    def _term(self, term: Term, other: Term, given: Any, found: PartialMatch) -> Iterator[PartialMatch]:
        """Match two calls of one operator."""
        self._steps += 1
        if not self._is_called(term, other):
            return
        if term.name == "silu" and other.name == "mul":
            sigmoid = Term("sigmoid", {"self": term.args["self"]})
            term = Term("mul", {"terms": (term.args["self"], sigmoid)})
        if term.name == "reshape" and other.name == "flatten":
            if not isinstance(given, Node) or (shape := self._calls.shape(given)) is None:
                return
            sizes = (s if type(s) is int else Size(given, dim, s) for dim, s in enumerate(shape))
            args = {"self": other.args["self"], "shape": tuple(sizes)}
            other = Term("reshape", args, other.nodes, rank=other.rank)
        nodes = {**found.nodes, **dict.fromkeys(other.nodes)}
        modules = found.modules
        if term.module and other.module:
            modules = {**modules, term.module: other.module}
        elif term.module and any(other.args["self"] in node.all_input_nodes for node in other.nodes):
            own = tuple(sorted(other.nodes, key=self._index.position.__getitem__))
            modules = {**modules, term.module: CallInPlaceOfModule(other.args["self"], own)}
        found = found.with_values(nodes=nodes, reached=found.reached + 1, modules=modules)
        at = given if isinstance(given, Node) or not other.nodes else other.nodes[0]
        if term.name in _COMMUTATIVE and "terms" in term.args:
            yield from self._commutative(term, other, found, at)
        elif term.name == "flatten" and other.name == "reshape":
            if self._is_flattened(term, other, given):
                yield from self._value(term.args["self"], other.args["self"], found)
            else:
                self._fail(
                    found, at, Reason.OTHER_OPERATOR, value=given, called="reshape", expected="flatten"
                )
        elif term.name == "transpose" and other.name == "permute":
            yield from self._transposed(term, other, found, at)
        else:
            yield from self._arguments(term, other, given, found, at)

    def _is_flattened(self, term: Term, other: Term, given: Any) -> bool:
        """Tell whether a reshape joins the dimensions that a pattern flattens."""
        before, shape = self._calls.shape(other.args["self"]), self._calls.shape(given)
        ends = [term.args.get(key, default) for key, default in (("start_dim", 0), ("end_dim", -1))]
        if before is None or shape is None or not before or not all(type(end) is int for end in ends):
            return False
        first, last = (end % len(before) for end in ends)
        expected = (*before[:first], math.prod(before[first : last + 1]), *before[last + 1 :])
        return len(expected) == len(shape) and all(map(is_same_number, expected, shape))

    def _arguments(
        self, term: Term, other: Term, given: Any, found: PartialMatch, at: Any
    ) -> Iterator[PartialMatch]:
        misfits: list[dict[str, Any]] = []

        def misfit(key: str, value: Any, expected: Any) -> bool:
            """Note an argument that does not fit, and tell whether to stop there."""
            misfits.append({"argument": key, "value": value, "expected": expected})
            return not self._explains

        level = [found]
        # A module in a pattern has any settings, but no other inputs.
        extra = [key for key in other.args if key not in term.args]
        extra = [key for key in extra if not term.module or (other.module and has_nodes(other.args[key]))]
        stops = bool(extra) and misfit(extra[0], other.args[extra[0]], "its default")
        for key in [] if stops else sorted(term.args, key=lambda key: has_nodes(term.args[key])):
            value = term.args[key]
            if (fact := self._fact(key, term, given)) is not None:
                if not has_nodes(value) and value != fact and misfit(key, fact, value):
                    break
                level = (
                    [more for one in level for more in self._value(value, fact, one)]
                    if has_nodes(value)
                    else level
                )
                continue
            if key not in other.args:
                default = other.whole(key, other.defaults.get(key), value)
                if has_nodes(value) and default is not None:
                    level = [more for one in level for more in self._value(value, default, one)]
                elif (term.module is None or has_nodes(value)) and misfit(key, "its default", value):
                    break
                continue
            if key in _DIMENSIONS and other.rank is not None:
                value = from_start(value, other.rank + (other.name == "unsqueeze"))
                value = tuple(sorted(value, key=str)) if key == "dim" and isinstance(value, tuple) else value
            theirs = other.whole(key, other.args[key], value)
            if not has_nodes(value) and not isinstance(value, Weight):
                fits = self._is_literal(value, theirs) or self._is_shape(key, value, theirs, given)
                if not fits and misfit(key, theirs, value):
                    break
                continue
            if key in ("shape", "dims"):
                value, theirs = self._shapes(key, value, theirs, given)
            if key == "dim" and isinstance(value, tuple) and len(value) == 1 == len(theirs):
                value, theirs = value[0], theirs[0]
            level = [more for one in level for more in itertools.islice(self._value(value, theirs, one), 16)]
        if not misfits:
            yield from level
        for one in level[:1] if misfits else ():
            self._fail(one, at, Reason.OTHER_ARGUMENT, **misfits[0])

    def _fact(self, key: str, term: Term, given: Any) -> Any:
        """Return the known dtype or device of a result, whether or not the call in the graph names it."""
        if key not in ("dtype", "device") or term.name == "to":
            return None
        return getattr(self._known(given), key, None)

    def _is_shape(self, key: str, value: Any, theirs: Any, given: Any) -> bool:
        """Tell whether a literal shape equals that of a result."""
        shape = self._calls.shape(given) if key == "shape" else None
        if shape is None or not isinstance(value, tuple) or len(value) != len(shape):
            return False
        return all(each == -1 or is_same_number(each, size) for each, size in zip(value, shape, strict=True))

    def _shapes(self, key: str, value: Any, theirs: Any, given: Any) -> tuple[Any, Any]:
        """Return two lists to compare, with open sizes taken from the result."""
        shape = self._calls.shape(given) if key == "shape" else None
        if (
            isinstance(value, tuple)
            and len(value) == 1
            and isinstance(value[0], Node)
            and value[0] not in self._pattern.scalars
        ):
            kind = self._pattern.captures.get(value[0])
            if len(theirs) != 1 and kind is not None and kind.kind == ANY:
                return value[0], theirs
        if shape is None or not isinstance(given, Node):
            return value, theirs
        known = tuple(
            Size(given, dim, shape[dim])
            if type(each) is int and each == -1 and len(theirs) == len(shape)
            else each
            for dim, each in enumerate(theirs)
        )
        if isinstance(value, tuple) and len(value) == len(known):
            known = tuple(
                -1 if type(mine) is int and mine == -1 else each
                for mine, each in zip(value, known, strict=True)
            )
        return value, known

    def _transposed(self, term: Term, other: Term, found: PartialMatch, at: Any) -> Iterator[PartialMatch]:
        dims, order = term.args["dims"], other.args["dims"]
        moved = [dim for dim, each in enumerate(order) if dim != each]
        is_literal = not has_nodes(dims)
        if len(moved) != 2 or (is_literal and {dim % len(order) for dim in dims} != {*moved}):
            expected = dims if is_literal else "two that are exchanged"
            self._misfit(found, at, "dims", tuple(moved), expected)
            return
        if is_literal:
            yield from self._value(term.args["self"], other.args["self"], found)
            return
        for first, second in (moved, moved[::-1]):
            for one in self._value(dims[0], first, found):
                for two in self._value(dims[1], second, one):
                    yield from self._value(term.args["self"], other.args["self"], two)

    def _commutative(self, term: Term, other: Term, found: PartialMatch, at: Any) -> Iterator[PartialMatch]:
        """Match a sum or a product, whose terms may come in any order and be grouped in any way."""
        terms, numbers, flattened = self._pattern.flat(term)
        for operands, own in self._flat_graph(term.name, other, len(terms) + len(numbers)):
            nodes, reached = {**found.nodes, **dict.fromkeys(own)}, found.reached + flattened
            grown = found.with_values(nodes=nodes, reached=reached)
            yield from self._assigned(term.name, terms, numbers, operands, grown, at)

    def _flat_graph(self, name: str, other: Term, wanted: int) -> Iterator[tuple[list[Any], list[Node]]]:
        """Yield the terms of a sum or product of the graph, grouped less and less."""
        if other.name == "pow":
            yield [other.args["self"], other.args["self"]], []
            return
        operands: list[Any] = list(other.args["terms"])
        own: list[Node] = []
        if wanted <= 2:
            yield list(operands), []
        # Sums that others read as well are opened last, as they stay for these.
        for is_any in (False, True):
            grown, place = False, 0
            most = wanted - 1 if is_any else wanted + _MOST_ABSORBED
            while place < len(operands) <= most:
                nearest = self._calls.term(operands[place])
                if nearest is None or not (nearest.is_transparent or nearest.name == name):
                    place += 1
                    continue
                passed = list(self._calls.seen_through(operands[place]))
                term = self._calls.term(passed[-1])
                nodes = [each for each in passed if isinstance(each, Node)]
                is_single = all(len(each.users) == 1 or len(self._index.readers(each)) == 1 for each in nodes)
                is_sum = term is not None and term.name == name and "terms" in term.args
                if is_sum and term is not None and (is_single or is_any) and self._is_exact(nodes):
                    operands[place : place + 1] = term.args["terms"]
                    own += [*nodes, *term.nodes]
                    grown = True
                else:
                    place += 1
            if grown or (not is_any and wanted > 2):
                yield list(operands), list(dict.fromkeys(own))

    def _is_exact(self, nodes: list[Node]) -> bool:
        """Tell whether sums of values may be regrouped, up to rounding."""
        return all(
            (dtype := self._calls.dtype(node)) is None or dtype.is_floating_point or dtype == torch.int64
            for node in nodes
        )

    def _assigned(
        self,
        name: str,
        terms: list[Any],
        numbers: list[Any],
        operands: list[Any],
        found: PartialMatch,
        at: Any,
    ) -> Iterator[PartialMatch]:
        given, tensors = list[Any](), list[Any]()
        for value in operands:
            (given if self._is_numeric(value) else tensors).append(value)
        captures, bare, calls = list[Any](), list[Any](), list[Any]()
        for value in terms:
            capture = self._pattern.captures.get(value) if isinstance(value, Node) else None
            (calls if capture is None else captures).append(value)
            is_bare = self._pattern.divisor(value) is not None if capture is None else capture.kind == ANY
            bare += [value] if is_bare else []
        if len(tensors) == len(terms) - 1 and bare and given and not numbers:
            # A bare argument may be a number, if a tensor is found for every other.
            for number in bare[::-1]:
                rest = [value for value in captures if value is not number]
                others = [value for value in calls if value is not number]
                for more in self._numbers(name, [number], given, found, at):
                    yield from self._paired(others, rest, tensors, more, name)
            return
        bare = [value for value in bare if isinstance(value, Node)]
        if len(tensors) < len(terms) or (len(tensors) > len(terms) and not bare):
            furthest = found
            for call in calls if tensors else ():  # name the missing operand rather than a count
                fits = (itertools.islice(self._value(call, each, found), 1) for each in tensors)
                best = max(itertools.chain(*fits), key=lambda more: more.reached, default=None)
                if best is None:
                    return
                if len(terms) < len(operands) == 2:  # the surplus operand is the misfit, and all else fits
                    furthest = max(furthest, best, key=lambda more: more.reached)
            count = len(terms) + len(numbers)
            if len(operands) == count:  # a tensor in place of a number, or the other way round
                is_more = len(tensors) > len(terms)
                surplus = next((each for each in tensors if each not in furthest.nodes), tensors[-1:])
                mine, theirs = (numbers[0], surplus) if is_more else (terms[-1], given[0])
                self._misfit(furthest, at, f"an operand of {name}", theirs, mine)
                return
            self._fail(furthest, at, Reason.OTHER_COUNT, name=name, count=len(operands), expected=count)
            return
        fits_numbers = False
        for more in self._numbers(name, numbers, given, found, at):
            fits_numbers = True
            yield from self._paired(calls, captures, tensors, more, name)
        if self._explains and not fits_numbers and self._latest is not None:
            where, reason, words = self._latest
            for more in itertools.islice(self._paired(calls, captures, tensors, found, name), 1):
                self._fail(more, where, reason, **words)

    def _numbers(
        self, name: str, wanted: list[Any], given: list[Any], found: PartialMatch, at: Any
    ) -> Iterator[PartialMatch]:
        """Match the numbers of a sum or a product, which are combined to one number."""
        literals = [value for value in wanted if is_number(value)]
        others = [value for value in wanted if not is_number(value)]
        plain = [value for value in given if is_number(value)]
        nodes = [value for value in given if not is_number(value)]
        joined = math.prod if name == "mul" else math.fsum
        theirs = plain[0] if len(plain) == 1 else joined(plain)
        ours = literals[0] if len(literals) == 1 else joined(literals)
        is_neutral = not plain or theirs == (1 if name == "mul" else 0)
        if not others:
            is_any = self._ignore_literals and bool(plain) == bool(literals)
            if not nodes and (is_any or self._is_literal(ours, theirs)):
                yield found
                return
            value = nodes[0] if nodes else theirs if plain else None
            self._misfit(found, at, f"the number of {name}", value, ours if literals else None)
        elif len(others) == 1 and len(nodes) == 1 and is_neutral:
            yield from self._value(others[0], nodes[0], found)
        elif len(others) == 1 and not nodes and plain:
            if literals:
                theirs = theirs / ours if name == "mul" else theirs - ours
            yield from self._value(others[0], theirs, found)
        elif len(others) == len(nodes) + len(plain) and not literals:
            for order in itertools.permutations(given):
                yield from self._value(tuple(others), order, found)
        elif len(given) == len(wanted):
            self._misfit(found, at, f"the numbers of {name}", tuple(given), tuple(wanted))
        else:
            words = {"name": f"numbers in {name}", "count": len(given), "expected": len(wanted)}
            self._fail(found, at, Reason.OTHER_COUNT, **words)

    def _is_another(self, value: Any, given: Any) -> bool:
        """Tell quickly whether a call of the pattern cannot be the call of the graph."""
        term = None if self._pattern.is_either(value) else self._pattern.term(value)
        if term is None or term.is_transparent or term.name == "to":
            return False
        other = self._calls.term(given)
        return other is None or not (other.is_transparent or self._is_called(term, other))

    def _paired(
        self, calls: list[Any], captures: list[Any], tensors: list[Any], found: PartialMatch, name: str
    ) -> Iterator[PartialMatch]:
        """Find a tensor for each term: calls first, then known arguments."""
        if calls:
            first, *rest = calls
            is_there = False
            for place, value in enumerate(tensors):
                if not self._explains and self._is_another(first, value):
                    continue
                for more in itertools.islice(self._value(first, value, found), 16):
                    is_there = True
                    yield from self._paired(
                        rest, captures, tensors[:place] + tensors[place + 1 :], more, name
                    )
            if self._explains and rest and not is_there:  # the operand left for it, if the next one fits
                for place, value in enumerate(tensors):
                    for more in itertools.islice(self._value(rest[0], value, found), 1):
                        for left in tensors[:place] + tensors[place + 1 :]:
                            list(itertools.islice(self._value(first, left, more), 1))
            return
        known = [value for value in captures if self._pattern.captures[value].name in found.captured]
        if known:
            rest = [value for value in captures if value is not known[0]]
            for place, value in enumerate(tensors):
                for more in self._value(known[0], value, found):
                    yield from self._paired([], rest, tensors[:place] + tensors[place + 1 :], more, name)
            return
        if not captures:
            if not tensors:
                yield found
            return
        for order in itertools.islice(itertools.permutations(tensors), 24):
            if len(order) > len(captures):
                free = [c for c in captures if self._pattern.captures[c].kind == ANY]
                if not free:
                    return
                head = [value for value in captures if value is not free[-1]]
                joined = AbsorbedTerms(name, order[len(head) :])
                yield from self._value((*head, free[-1]), (*order[: len(head)], joined), found)
                if not head:
                    return
            else:
                yield from self._value(tuple(captures), order, found)

    def _bind(self, capture: Capture, given: Any, found: PartialMatch) -> Iterator[PartialMatch]:
        """Bind an argument of the pattern to a value."""
        if not self._is_of_kind(capture, given):
            kind = "a whole number" if capture.is_whole else _KIND_WORDS[capture.kind]
            self._fail(found, None, Reason.OTHER_KIND, value=given, argument=capture.name, kind=kind)
            return
        if capture.name not in found.captured:
            yield found.with_values(captured={**found.captured, capture.name: given})
            return
        known = found.captured[capture.name]
        if known is given or self._is_same(known, given):
            value = self._common(known, given)
            passed = [*self._until(known, value), *self._until(given, value)]
            nodes = {**found.nodes, **dict.fromkeys(passed)}
            yield found.with_values(captured={**found.captured, capture.name: value}, nodes=nodes)
        elif self._is_written_as(known, given) or self._is_written_as(given, known):
            self._fail(found, given, Reason.WRITTEN_IN_PLACE, value=known)
        else:
            self._fail(found, given, Reason.OTHER_VALUE, value=given, expected=known)

    def _is_written_as(self, value: Any, later: Any) -> bool:
        """Tell whether one value is the other after a write in place."""
        while (term := self._calls.term(later)) is not None and (term.is_write or term.is_transparent):
            later = term.args["terms"][0] if "terms" in term.args else term.args.get("self")
            if self._index.key(later) == self._index.key(value):
                return True
        return False

    def _is_same(self, known: Any, given: Any) -> bool:
        if self._is_numeric(known) and self._is_numeric(given):
            return is_same_number(number_of(known), number_of(given))
        if isinstance(known, tuple) and isinstance(given, tuple) and len(known) == len(given):
            return all(self._is_same(a, b) for a, b in zip(known, given, strict=True))
        return bool(self._index.key(known) == self._index.key(given))

    def _common(self, known: Any, given: Any) -> Any:
        """Return the last value of which two are copies, or one of the two."""
        if not isinstance(known, Node):
            return known
        others = list(self._calls.seen_through(given))
        return next((each for each in self._calls.seen_through(known) if each in others), known)

    def _until(self, value: Any, last: Any) -> list[Node]:
        """Return the copies of ``last``, up to a value."""
        if not isinstance(value, Node):
            return []
        passed = itertools.takewhile(lambda each: each is not last, self._calls.seen_through(value))
        nodes = [each for each in passed if isinstance(each, Node)]
        return nodes if any(each is last for each in self._calls.seen_through(value)) else []

    def _is_of_kind(self, capture: Capture, given: Any) -> bool:
        if isinstance(given, Term):
            return False
        is_numeric = self._is_numeric(given)
        if capture.kind == NUMBER:
            return is_numeric and not (capture.is_whole and isinstance(number_of(given), float))
        if capture.kind == WEIGHT:
            facts = self._index.facts
            is_read = isinstance(given, Node) and isinstance(facts.attribute(given), torch.Tensor)
            return isinstance(given, Weight) or is_read
        if capture.kind == TENSOR:
            return isinstance(given, Node | Weight | AbsorbedTerms) and not is_numeric
        return given is not None

    def _is_numeric(self, value: Any) -> bool:
        if isinstance(value, Term):  # a divisor
            return value.name == "pow" and all(map(self._is_numeric, value.args.values()))
        if not isinstance(value, Node):
            return is_number(value) or isinstance(value, Size)
        result = known_result(value)
        if isinstance(result, torch.Tensor):
            return False
        is_known = isinstance(result, int | float | torch.SymInt | torch.SymFloat)
        return is_known or value in self._index.facts.numbers

    def _closed(self, found: PartialMatch) -> Iterator[PartialMatch]:
        """Compare what the pattern computes without tensors, once its inputs are known."""
        fits = (any(True for _ in self._computed(*each, found, is_last=True)) for each in found.open)
        if all(fits):
            yield found.with_values(open=())

    def _computed(
        self, value: Node | Term, given: Any, found: PartialMatch, *, is_last: bool = False
    ) -> Iterator[PartialMatch]:
        """Match a number, shape, dtype or device that the pattern computes, later if an input is unknown."""
        if self._is_written_alike(value, given, found):
            yield found
            return
        try:
            expected = self._evaluated(value, found)
        except (_UnknownError, ZeroDivisionError):
            if is_last:
                asked = value.args["self"] if isinstance(value, Term) else value
                self._fail(found, None, Reason.UNKNOWN_SHAPE, value=asked)
            else:
                yield found.with_values(open=(*found.open, (value, given)))
            return
        theirs = number_of(given)
        if expected == theirs if isinstance(expected, _NO_NUMBERS) else is_same_number(expected, theirs):
            yield found
        else:
            kind = {torch.dtype: "the dtype", torch.device: "the device"}.get(type(expected), "a number")
            at = given if isinstance(given, Node) else None
            self._misfit(found, at, kind, given if theirs is None else theirs, expected)

    def _is_written_alike(self, value: Any, given: Any, found: PartialMatch) -> bool:
        """Tell whether a graph without known results computes a value by the very calls of the pattern."""
        if isinstance(value, Term) and isinstance(given, Term):
            return value.name == given.name and all(
                self._is_written_alike(each, given.args.get(key), found) for key, each in value.args.items()
            )
        if not isinstance(value, Node) or not isinstance(given, Node):
            return not isinstance(value, Node | Term) and type(value) is type(given) and bool(value == given)
        if value.op == "placeholder" or value not in self._pattern.scalars:
            known = self._given(value, found)
            return known is not None and bool(self._index.key(known) == self._index.key(given))
        is_call = (value.op, value.target, len(value.args)) == (given.op, given.target, len(given.args))
        return is_call and all(
            self._is_written_alike(mine, theirs, found)
            for mine, theirs in zip(value.args, given.args, strict=True)
        )

    def _evaluated(self, node: Any, found: PartialMatch) -> Any:
        """Return what the pattern computes without tensors, such as half of a size."""
        if isinstance(node, Term):
            if node.name == "dtype":
                return self._asked(node.args["self"], "dtype", found)
            return self._evaluated(node.args["self"], found) ** node.args["exponent"]
        if not isinstance(node, Node):
            return node
        if node.op == "placeholder":
            if self._pattern.captures[node].name not in found.captured:
                raise _UnknownError
            return number_of(found.captured[self._pattern.captures[node].name])
        if node.target is getattr:
            base, name = node.args[0], str(node.args[1])
            is_tensor = base not in self._pattern.scalars
            return (
                self._asked(base, name, found) if is_tensor else getattr(self._evaluated(base, found), name)
            )
        if node.op == "call_method":
            shape = self._calls.shape(self._given(node.args[0], found))
            if shape is None:
                raise _UnknownError
            dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
            if node.target == "numel":
                return math.prod(shape)
            return len(shape) if node.target == "dim" else shape if dim is None else shape[dim]  # type: ignore[index]
        target: Any = node.target
        return target(*(self._evaluated(each, found) for each in node.args))

    def _asked(self, value: Any, name: str, found: PartialMatch) -> Any:
        """Return the shape, rank, dtype or device of a tensor of the pattern."""
        given = self._given(value, found)
        known = self._known(given)
        if name == "dtype" and isinstance(given, Node) and known is None:
            answer: Any = known_dtype(given)
        elif name == "ndim":
            answer = None if known is None else len(known.shape)
        else:
            answer = getattr(known, name, None)
        if answer is None:
            raise _UnknownError
        return answer

    def _known(self, value: Any) -> Any:
        """Return the known result of a node, or the tensor of a weight."""
        if isinstance(value, Weight):
            return attribute_at(self._index.facts.graph_module, value.path, None)
        result = known_result(value) if isinstance(value, Node) else None
        return self._index.facts.attribute(value) if result is None and isinstance(value, Node) else result

    def _given(self, value: Any, found: PartialMatch) -> Any:
        if isinstance(value, Node) and value.op == "placeholder":
            return found.captured.get(self._pattern.captures[value].name)
        return found.of.get(value)

    def _is_constant(self, node: Node, given: Any) -> bool:
        ours: Any = getattr(self._pattern.root, str(node.target), None)
        if isinstance(ours, torch.Tensor) and ours.dim() == 0 and is_number(given):
            return self._is_literal(ours.item(), given)
        theirs = self._index.facts.attribute(given) if isinstance(given, Node) else None
        return (
            isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor) and torch.equal(ours, theirs)
        )

    def _is_literal(self, value: Any, given: Any) -> bool:
        if isinstance(value, tuple | list) and isinstance(given, tuple | list):
            return len(value) == len(given) and all(map(self._is_literal, value, given))
        if is_number(value) and self._is_numeric(given):
            return self._ignore_literals or is_same_number(value, number_of(given))
        return type(value) is type(given) and bool(value == given)

    def _misfit(self, found: PartialMatch, at: Any, argument: str, value: Any, expected: Any) -> None:
        self._fail(found, at, Reason.OTHER_ARGUMENT, argument=argument, value=value, expected=expected)

    def _fail(self, found: PartialMatch, at: Any, reason: Reason, **words: Any) -> None:
        """Note how far a match has come and the misfit, if near misses are asked for."""
        begin = self._begin
        if begin is None or not self._explains:
            return
        self._latest = at, reason, words
        known = self._misses.get(begin)
        total, node = self._pattern.total, at if isinstance(at, Node) else None
        # Factors are tried in any order: of x * tanh(x), the misfit is the one that reads the other.
        reads_it = known and node and found.reached == known.reached and known.at in node.all_input_nodes
        if known is None or found.reached > known.reached or reads_it:
            own = tuple(sorted(found.nodes, key=self._index.position.__getitem__))
            refusal = reason(**{name: text_of(value) for name, value in words.items()})
            self._misses[begin] = NearMiss(
                begin, own or (begin,), min(found.reached, total), total, refusal, node
            )


class _UnknownError(Exception):
    pass


_KIND_WORDS = {NUMBER: "a number", WEIGHT: "a weight or buffer", TENSOR: "a tensor", ANY: "a value"}
