"""Values bound to the arguments of a pattern while it is matched; sums and products match in any order."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason
from fxlab.operators.node_info import attribute_at, known_result
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.calls.term import Term, Weight, is_number
from fxlab.transformations.patterns.captured import (
    AbsorbedTerms,
    NearMiss,
    PartialMatch,
    Size,
    is_same_number,
    number_of,
    text_of,
)
from fxlab.transformations.patterns.pattern import ANY, NUMBER, TENSOR, WEIGHT, Capture, Pattern

_NO_NUMBERS = (torch.dtype, torch.device, torch.Size)
_KIND_WORDS = {NUMBER: "a number", WEIGHT: "a weight or buffer", TENSOR: "a tensor", ANY: "a value"}


class Binding:
    """The values that a pattern captures in a graph, and what it computes of them without tensors.

    ``explains``: whether :attr:`misses` are needed, so that the parts after a misfit are compared as well.
    """

    def __init__(self, pattern: Pattern, index: GraphIndex, *, explains: bool = False) -> None:
        self._pattern, self._index, self._explains = pattern, index, explains
        self._latest: tuple[Any, Reason, dict[str, Any]] | None = None
        self._calls = index.calls
        self._misses: dict[Node, NearMiss] = {}
        self._begin: Node | None = None
        self._steps = 0

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
        fits = (any(True for _ in self._computed(*each, found, is_last=True)) for each in found.unresolved)
        if all(fits):
            yield found.with_values(unresolved=())

    def _computed(
        self, value: Node | Term, given: Any, found: PartialMatch, *, is_last: bool = False
    ) -> Iterator[PartialMatch]:
        """Match a number, shape, dtype or device that the pattern computes, later if an input is unknown."""
        if self._is_written_alike(value, given, found):
            yield found
            return
        try:
            expected = self._evaluated(value, found)
        except (UnknownError, ZeroDivisionError):
            if is_last:
                asked = value.args["self"] if isinstance(value, Term) else value
                self._fail(found, None, Reason.UNKNOWN_SHAPE, value=asked)
            else:
                yield found.with_values(unresolved=(*found.unresolved, (value, given)))
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
                raise UnknownError
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
                raise UnknownError
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
            raise UnknownError
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
        return found.values.get(value)

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
            return is_same_number(value, number_of(given))
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


class UnknownError(Exception):
    """Raised where a pattern computes something of a value whose shape, dtype or device is unknown."""


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
