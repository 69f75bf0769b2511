"""Finds the places at which a pattern matches, and how far it gets elsewhere, for passes that look for it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.fx import Node

from fxlab.base.reasons import Reason
from fxlab.transformations.calls.term import Term, Weight, from_start, is_number
from fxlab.transformations.patterns.binding import ALSO_CALLED, SumMatching
from fxlab.transformations.patterns.captured import (
    CallInPlaceOfModule,
    NearMiss,
    PartialMatch,
    Size,
    has_nodes,
    is_same_number,
)
from fxlab.transformations.patterns.pattern import ANY, WEIGHT, Capture

_COMMUTATIVE = ("add", "mul")
_MOST_STEPS = 4000
"""The most comparisons at one node, so that a pattern with many orders ends."""
_DIMENSIONS = ("dim", "dims", "start_dim", "end_dim")


def _names_in_graphs(term: Term) -> set[str]:
    return {term.name, *(other for own, other in ALSO_CALLED if own == term.name)}


class Matcher(SumMatching):
    """The matches of one pattern in one graph."""

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
            is_inner = node in found.nodes and node is not found.values.get(output)
            if is_inner or (alike and not is_later):
                continue
            for more in self._root(output, node, found):
                yield from self._others(rest, (*roots, node), more)

    def _is_alike(self, output: Any) -> bool:
        """Tell whether a result calls the same operator as the first, so that the graph orders them."""
        terms = [self._pattern.term(value) for value in (self._pattern.outputs[0], output)]
        return all(terms) and len({term.name for term in terms if term}) == 1

    def _near(self, output: Any, found: PartialMatch) -> list[Node]:
        if isinstance(output, Node) and output in found.values:
            known = found.values[output]
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
        if isinstance(value, Node) and value in found.values:
            if self._index.key(found.values[value]) == self._index.key(node):
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
                more = more.with_values(values={**more.values, value: node})
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
                    yield more.with_values(values={**more.values, value: given})
        elif value.op == "get_attr":
            if self._is_constant(value, given):
                yield found
            else:
                self._misfit(found, None, "a constant", given, value.name)
        elif value in found.values:
            if self._index.key(found.values[value]) == self._index.key(given):
                yield found
            else:
                self._fail(found, None, Reason.OTHER_VALUE, value=given, expected=found.values[value])
        elif (term := pattern.term(value)) is not None:
            yield from self._call(term, given, found, value)

    def _call(self, term: Term, given: Any, found: PartialMatch, node: Node | None) -> Iterator[PartialMatch]:
        """Match a call of the pattern with a value, past calls that only pass it on."""

        def noted(more: PartialMatch) -> PartialMatch:
            return more if node is None else more.with_values(values={**more.values, node: given})

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
