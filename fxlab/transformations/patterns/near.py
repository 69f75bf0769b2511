"""Places where all but one call of a pattern fit, and the call that does not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.calls.arguments import from_start, is_number
from fxlab.transformations.calls.calls import Calls, Term
from fxlab.transformations.patterns.pattern import Pattern

_COMMUTATIVE = ("add", "mul")
_DIMENSIONS = ("dim", "dims", "start_dim", "end_dim")


@dataclass(frozen=True)
class Score:
    """The share of a pattern that fits at a value."""

    count: int = 0
    nodes: tuple[Node, ...] = ()
    refusal: Refusal | None = None
    """The misfit."""
    at: Node | None = None

    def and_also(self, other: "Score") -> "Score":
        """Return what two parts of a pattern have together."""
        refusal, at = (other.refusal, other.at) if self.refusal is None else (self.refusal, self.at)
        return Score(self.count + other.count, (*self.nodes, *other.nodes), refusal, at)


class NearMisses:
    """Compares a pattern with a graph, and lets one call be another.

    Captured arguments are not compared: where all calls fit, a match has failed by them.

    Parameters
    ----------
    pattern
        The pattern.
    calls
        The calls of the graph.
    is_called
        Tells whether a call of the pattern may be one of the graph.
    is_literal
        Tells whether a literal of the pattern is a value of the graph.
    """

    def __init__(
        self,
        pattern: Pattern,
        calls: Calls,
        is_called: Callable[[Term, Term], bool],
        is_literal: Callable[[Any, Any], bool],
    ) -> None:
        self._pattern, self._calls = pattern, calls
        self._is_called, self._is_literal = is_called, is_literal
        self._known: dict[tuple[int, Any, int], Score | None] = {}

    def at(self, value: Any, node: Node) -> Score | None:
        """Return how much of the pattern fits at a node, with one call that does not."""
        scores = [self._value(each, node, 1) for each in self._pattern.alternatives(value)]
        return max((score for score in scores if score is not None), key=lambda s: s.count, default=None)

    def _value(self, value: Any, given: Any, budget: int) -> Score | None:
        if isinstance(value, tuple | list):
            return self._list(value, given, budget)
        if isinstance(value, Node) and self._pattern.is_either(value):
            scores = [self._value(each, given, budget) for each in self._pattern.alternatives(value)]
            return _best(scores)
        is_argument = isinstance(value, Node) and (
            value.op == "placeholder" or value in self._pattern.scalars
        )
        term = None if is_argument else self._pattern.term(value)
        if term is None:
            return Score()
        if not isinstance(given, Node | Term):
            refusal = Reason.OTHER_OPERATOR(value=given, called="an argument", expected=term.name)
            return Score(refusal=refusal) if budget else None
        key = id(value), given, budget
        if key not in self._known:
            self._known[key] = None
            self._known[key] = self._call(term, given, budget)
        return self._known[key]

    def _list(self, value: Any, given: Any, budget: int) -> Score | None:
        if not isinstance(given, tuple | list) or len(given) != len(value):
            return Score()
        return self._all(zip(value, given, strict=True), budget)

    def _all(self, pairs: Any, budget: int, start: Score | None = None) -> Score | None:
        """Return the score of several parts, of which one may have the misfit."""
        total = start or Score()
        for value, given in pairs:
            score = self._value(value, given, budget if total.refusal is None else 0)
            if score is None:
                return None
            total = total.and_also(score)
        return total

    def _call(self, term: Term, given: Any, budget: int) -> Score | None:
        for value in self._calls.seen_through(given):
            other = self._calls.term(value)
            if other is not None and self._is_called(term, other):
                return self._same(term, other, value, budget)
        if term.is_transparent or (term.name == "to" and term.args["dtype"] == self._calls.dtype(given)):
            return self._value(term.args["self"], given, budget)
        *_, last = self._calls.seen_through(given)
        return self._other(term, last) if budget and isinstance(last, Node) else None

    def _other(self, term: Term, given: Node) -> Score:
        """Return what fits around a call that is another, is missing, or is one too many."""
        own = self._calls.term(given)
        called = str(getattr(given.target, "__name__", given.target)) if own is None else own.name
        called = "an input" if given.op == "placeholder" else called
        refusal = Reason.OTHER_OPERATOR(value=given.name, called=called, expected=term.name)
        parts = [part for part in _parts(term) if self._pattern.term(part) is not None]
        replaced = self._around(parts, given.all_input_nodes)
        scores: list[Score | None] = [replaced]
        scores += [self._value(part, given, 0) for part in parts]  # the call is missing
        scores += [self._call(term, each, 0) for each in given.all_input_nodes]  # one too many
        best = _best(scores) or Score()
        return replace(best, refusal=refusal, at=given)

    def _around(self, parts: list[Any], inputs: list[Node]) -> Score:
        """Return what fits of the parts of a call among the inputs of another."""
        total = Score()
        for part in parts:
            best = _best([self._value(part, each, 0) for each in inputs])
            total = total.and_also(best or Score())
        return total

    def _same(self, term: Term, other: Term, given: Any, budget: int) -> Score | None:
        at = given if isinstance(given, Node) else None
        start = Score(1, other.nodes)
        if term.name in _COMMUTATIVE and "terms" in term.args and "terms" in other.args:
            return self._commutative(term, other, at, budget, start)
        if term.name != other.name:
            return self._all([(part, other.args.get("self")) for part in _parts(term)[:1]], budget, start)
        pairs: list[tuple[Any, Any]] = []
        for key, value in term.args.items():
            theirs = other.args.get(key, other.defaults.get(key))
            if _has_nodes(value):
                pairs.append((value, theirs))
                continue
            if key in _DIMENSIONS and other.rank is not None:
                value = from_start(value, other.rank + (other.name == "unsqueeze"))
            if not (key == "shape" or term.module or self._is_literal(value, theirs)):
                if not budget or start.refusal is not None:
                    return None
                words = "its default" if key not in other.args else theirs
                refusal = Reason.OTHER_ARGUMENT(argument=key, value=words, expected=value)
                start = replace(start, refusal=refusal, at=at)
        extra = [key for key in other.args if key not in term.args and not term.module]
        if extra:
            if not budget or start.refusal is not None:
                return None
            refusal = Reason.OTHER_ARGUMENT(
                argument=extra[0], value=other.args[extra[0]], expected="its default"
            )
            start = replace(start, refusal=refusal, at=at)
        return self._all(pairs, budget, start)

    def _commutative(
        self, term: Term, other: Term, at: Node | None, budget: int, start: Score
    ) -> Score | None:
        """Return what fits of a sum or a product, in any order and grouped in any way."""
        terms, inner = self._flat(term, self._pattern.calls, at=None)
        operands, own = self._flat(other, self._calls, at=at)
        numbers = [value for value in terms if is_number(value)]
        scalars = [v for v in terms if isinstance(v, Node) and v in self._pattern.scalars]
        theirs = [value for value in operands if is_number(value)]
        total = replace(start, count=start.count + len(inner), nodes=(*start.nodes, *own))
        if (
            not scalars
            and sorted(numbers) != sorted(theirs)
            and not self._is_same_total(term, numbers, theirs)
        ):
            if not budget:
                return None
            found, expected = (values[0] if values else "none" for values in (theirs, numbers))
            refusal = Reason.OTHER_ARGUMENT(
                argument=f"the number of {term.name}", value=found, expected=expected
            )
            total = replace(total, refusal=refusal, at=at)
        calls = [value for value in terms if not is_number(value) and self._is_call(value)]
        left = [value for value in operands if not is_number(value)]
        missing = []
        for value in calls:
            scores = [(self._value(value, each, 0), each) for each in left]
            fits = [(score, each) for score, each in scores if score is not None]
            if not fits:
                missing.append(value)
                continue
            score, chosen = max(fits, key=lambda pair: pair[0].count)
            left.remove(chosen)
            total = total.and_also(score)
        for value in missing:
            if not budget or total.refusal is not None:
                return None
            best = _best([self._value(value, each, 1) for each in left])
            if best is None:
                return None
            total = total.and_also(best)
        return total

    def _is_same_total(self, term: Term, numbers: list[Any], theirs: list[Any]) -> bool:
        if bool(numbers) != bool(theirs):
            return False
        if term.name == "add":
            return self._is_literal(float(sum(numbers)), float(sum(theirs)))
        products = [1.0, 1.0]
        for index, values in enumerate((numbers, theirs)):
            for value in values:
                products[index] *= value
        return self._is_literal(*products)

    def _is_call(self, value: Any) -> bool:
        if isinstance(value, Node) and (value.op == "placeholder" or value in self._pattern.scalars):
            return False
        return (isinstance(value, Node) and self._pattern.is_either(value)) or self._pattern.term(
            value
        ) is not None

    def _flat(self, term: Term, calls: Calls, at: Node | None) -> tuple[list[Any], list[Node]]:
        """Return the terms of a sum or product with those of sums or products in it, of one user each."""
        terms, inner, pending = list[Any](), list[Node](), list(term.args["terms"])
        while pending and len(terms) < 12:
            value = pending.pop(0)
            own = calls.term(value)
            is_single = isinstance(value, Term) or (isinstance(value, Node) and len(value.users) == 1)
            if own is not None and own.name == term.name and "terms" in own.args and is_single:
                inner += [value] if isinstance(value, Node) else []
                pending = [*own.args["terms"], *pending]
            else:
                terms.append(value)
        return terms, inner


def _parts(term: Term) -> list[Any]:
    return [part for value in term.args.values() for part in _flattened(value)]


def _flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _flattened(each)
    elif isinstance(value, Node | Term):
        yield value


def _has_nodes(value: Any) -> bool:
    return next(_flattened(value), None) is not None


def _best(scores: list[Score | None]) -> Score | None:
    return max((score for score in scores if score is not None), key=lambda s: s.count, default=None)
