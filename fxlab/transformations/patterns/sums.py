"""Sums and products, whose terms may come in any order and be grouped in any way."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason
from fxlab.transformations.calls.arguments import is_number
from fxlab.transformations.calls.term import Term
from fxlab.transformations.patterns.binding import Binding
from fxlab.transformations.patterns.captured import AbsorbedTerms, PartialMatch
from fxlab.transformations.patterns.pattern import ANY

ALSO_CALLED = frozenset({
    ("transpose", "permute"), ("silu", "mul"), ("mul", "pow"), ("flatten", "reshape"), ("reshape", "flatten"),
})  # fmt: skip
"""Calls of a pattern, and those of a graph that may compute the same."""
_MOST_ABSORBED = 6
"""The most terms of a sum or a product that one argument stands for."""


class SumMatching(Binding, ABC):
    """Matches the terms of sums and products, each by :meth:`_value`."""

    @abstractmethod
    def _value(self, value: Any, given: Any, found: PartialMatch) -> Iterator[PartialMatch]:
        """Match a value of the pattern with one of the graph."""

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
            if not nodes and self._is_literal(ours, theirs):
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

    def _is_called(self, term: Term, other: Term) -> bool:
        if term.name == other.name:
            return True
        return (term.name, other.name) in ALSO_CALLED and (other.name != "pow" or other.args["exponent"] == 2)
