"""Patterns of the compiler tried at nodes, with outcomes, and the tables that sessions show of these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, unique
from typing import TypeVar

from torch.fx import Node

from fxlab.base.first_use import pd
from fxlab.base.words import counted
from fxlab.operators.node_info import target_text


@unique
class Outcome(Enum):
    """Outcomes of a match: the name of each is its code, in kebab case, the value its words."""

    MATCHED = "matched"
    OPERATOR = "it takes the operator {wanted}, and finds {found}"
    USERS = "it takes a value with {wanted}, and finds {found}"
    ARGUMENTS = "it takes {wanted}, and finds {found}"
    CONSTANT = "it takes the constant {wanted}, and finds {found}"
    REPEATED = "it takes one value in two places, and finds two values"
    OUTPUT = "it takes several outputs, and finds no {wanted} that reads the same values"
    CHECK = "all operators match, and its check {found} refuses"
    SETTING = "all operators match, and the setting {found} is off"
    SHAPES = "all operators match, but with these shapes and dtypes it takes {wanted}, and finds {found}"
    WRITE = "all operators match, but a value is written in place between them"
    STREAM = "all operators match, but they run on several streams"
    OTHER = "{found}"

    @property
    def code(self) -> str:
        """The stable name of the outcome."""
        return self.name.lower().replace("_", "-")


def any_of(names: Sequence[str]) -> str:
    """Write a choice of names, only the first ones of many: ``a or b or c or 4 others``."""
    most = 5
    shown, left = (names, 0) if len(names) <= most else (names[:3], len(names) - 3)
    return " or ".join(shown) + (f" or {left} others" if left else "")


@dataclass(frozen=True, eq=False)
class Pattern:
    """A pattern that is registered with a pass."""

    name: str
    """Its own name, or that of the function that is searched for or that replaces a match."""
    begins: tuple[str, ...]
    """The operators at which a match begins: the last ones of the replaced nodes."""
    operators: tuple[str, ...]
    """All its operators, inputs first."""

    @property
    def begins_at(self) -> str:
        """The operators at which a match begins, in words."""
        return any_of(self.begins)


@dataclass(frozen=True, eq=False, slots=True)
class Attempt:
    """A pattern that the compiler has tried at a node."""

    pattern: Pattern
    node: str
    """The node at which the match begins."""
    nodes: tuple[str, ...]
    """The nodes whose operators match, the one at which it begins first."""
    outcome: Outcome
    at: str = ""
    """The node that does not match; empty if all do, or if there is a constant or nothing."""
    wanted: str = ""
    found: str = ""

    @property
    def is_matched(self) -> bool:
        """Whether the pattern has matched. Its replacement may have changed nothing."""
        return self.outcome is Outcome.MATCHED

    @property
    def is_near(self) -> bool:
        """Whether several operators match: four, or half of them, or all."""
        reached = len(self.nodes)
        return self.is_whole or (reached > 1 and reached >= min(4, len(self.pattern.operators) / 2))

    @property
    def is_whole(self) -> bool:
        """Whether all operators match."""
        return len(self.nodes) >= len(self.pattern.operators)

    def row(self, pass_: str) -> tuple[object, ...]:
        """Return it in the columns of :meth:`fxlab.Session.why_not`, as one of a pass."""
        code = "" if self.is_matched else self.outcome.code
        counts = len(self.nodes), len(self.pattern.operators)
        return self.pattern.name, pass_, self.is_matched, self.words, code, *counts, self.at, self.node

    @property
    def words(self) -> str:
        """The outcome in words."""
        if self.is_matched:
            return f"it matches, and is handed to {self.pattern.name}"
        reason = self.outcome.value.format(wanted=self.wanted, found=self.found)
        if self.outcome in _OF_THE_WHOLE:
            return reason
        operators = counted(len(self.pattern.operators), "operator")
        return f"{min(len(self.nodes), len(self.pattern.operators))} of {operators} match; then {reason}"


_OF_THE_WHOLE = (Outcome.CHECK, Outcome.SETTING, Outcome.SHAPES, Outcome.WRITE, Outcome.STREAM)


K = TypeVar("K")

_NOT_CALLED = {"placeholder": "an input", "get_attr": "a weight or a constant", "output": "the output"}
_COLUMNS = ["pattern", "pass", "matched", "reason", "code", "reached", "operators", "at", "begins_at"]


@dataclass(frozen=True)
class PatternAttempts:
    """The patterns that a pass has tried."""

    pass_: str
    patterns: Sequence[Pattern]
    attempts: Sequence[Attempt]
    names_of: Callable[[Iterable[str]], tuple[str, ...]]
    """Returns the names in stages of nodes of the compiler."""


def attempts_at(tried: Iterable[PatternAttempts], node: str, pattern: str | None) -> pd.DataFrame:
    """Return a row for each pattern that was tried at a node, or matched it in passing, furthest first."""
    found = []
    for one in tried:
        for attempt in one.attempts:
            if pattern in (None, attempt.pattern.name):
                names = one.names_of(attempt.nodes)
                if node in names or node in one.names_of([attempt.node]):
                    found.append((one, attempt))
    found.sort(key=lambda pair: _progress(pair[1]), reverse=True)
    rows = []
    for one, attempt in found:
        begins, at = (one.names_of([name])[0] if name else "" for name in (attempt.node, attempt.at))
        rows.append(replace(attempt, node=begins, at=at).row(one.pass_))
    return attempts_table(rows)


def attempts_table(rows: Iterable[Sequence[object]]) -> pd.DataFrame:
    """Return rows of the columns of :meth:`fxlab.Session.why_not` as a table."""
    types = {"matched": bool, "reached": int, "operators": int}
    return pd.DataFrame(list(rows), columns=_COLUMNS).astype(types).set_index("pattern")


def not_tried(tried: Iterable[PatternAttempts], node: Node, pattern: str | None = None) -> pd.DataFrame:
    """Return rows like those of :func:`attempts_at` for patterns that were not tried at a node, and why."""
    rows = []
    target = _NOT_CALLED.get(node.op) or target_text(node)
    for one in tried:
        for own in one.patterns:
            if pattern not in (None, own.name):
                continue
            fits = any(target == name or target.startswith(f"{name}.") for name in own.begins)
            code, words = "operator", f"it begins at {own.begins_at}, and this is {target}"
            if fits:
                code = "not-tried"
                words = "not tried: the node was not there when the pass ran, or a match had replaced it"
            rows.append((own.name, one.pass_, False, words, code, 0, len(own.operators), node.name, ""))
    return attempts_table(rows)


def near_misses(
    tried: PatternAttempts, there: Container[str], taken: Container[str]
) -> Iterator[tuple[tuple[str, ...], Attempt]]:
    """Yield the nodes at which a pattern got past its first operator and did not match.

    Of the patterns tried at one node, it is the one that got furthest, with the nodes that match it.

    ``tried``: attempts of the pass. ``there``: nodes of the graph below. ``taken``: nodes reported otherwise.
    """
    matched = {attempt.node for attempt in tried.attempts if attempt.is_matched}
    missed = (a for a in tried.attempts if a.is_near and a.node not in matched)
    for attempt in _furthest((attempt.node, attempt) for attempt in missed).values():
        begin, *rest = tried.names_of([attempt.node, *attempt.nodes])
        names = tuple(dict.fromkeys([begin, *(name for name in rest if name in there)]))
        if begin in there and begin not in taken:
            yield names, attempt


def told(
    first: int, misses: Iterable[tuple[tuple[str, ...], Attempt]]
) -> Iterator[tuple[str, bool, str, str, int]]:
    """Yield rows of an explanation for near misses, which are numbered from ``first`` on."""
    for number, (names, attempt) in enumerate(misses, first):
        for name in names:
            words = f"{attempt.pattern.name}: {attempt.words}"
            yield name, False, words, attempt.outcome.code, number


def _furthest(attempts: Iterable[tuple[K, Attempt]]) -> dict[K, Attempt]:
    """Return the first attempt under each key that got furthest."""
    found: dict[K, Attempt] = {}
    for key, attempt in attempts:
        if key not in found or _progress(attempt) > _progress(found[key]):
            found[key] = attempt
    return found


def _progress(attempt: Attempt) -> tuple[bool, bool, int, int]:
    """Order attempts by how far they got."""
    reached = len(attempt.nodes)
    return attempt.is_matched, attempt.is_whole, reached, reached - len(attempt.pattern.operators)
