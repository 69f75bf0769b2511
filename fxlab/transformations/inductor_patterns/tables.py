"""Tables of patterns, and of the nodes at which they were tried."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch.fx import Node

from fxlab.base.first_use import pd
from fxlab.operators.node_info import target_text
from fxlab.transformations.inductor_patterns.attempt import Attempt, Pattern

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

    ``tried``: the attempts of the pass. ``there``: the nodes of the graph below the pass. ``taken``: nodes
    that are reported otherwise.
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
