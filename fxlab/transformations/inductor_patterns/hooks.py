"""Private hooks of torch's pattern matcher that report where its patterns fail, for explanations of passes.

While a pass of patterns runs, copies replace its entries, which do the same and report the outcome. The
answers are the compiler's own, given when it asked, on the graph of that moment.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.fx import Node

from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.heard_calls import Call, Patches, held_by_closure
from fxlab.base.interrupts import RestoringStack
from fxlab.base.words import counted
from fxlab.operators.node_info import function_text, target_text
from fxlab.transformations.inductor_patterns.tables import Attempt, Outcome, Pattern, PatternAttempts, any_of

_MATCHER = "torch._inductor.pattern_matcher"
_MOST_LETTERS = 80
_NO_NAMES = {"fn", "_", "inner", "wrapper", "<lambda>"}
_TORCH = os.path.dirname(os.path.dirname(torch.__file__))


class MatcherRecorder:
    """Hears the calls of torch's pattern matcher in the thread that made this."""

    def __init__(
        self,
        begin: Callable[[Sequence[Pattern]], None],
        tell: Callable[[Attempt], None],
        is_heard: Callable[[], bool],
    ) -> None:
        self._begin, self._tell_of, self._is_heard = begin, tell, is_heard
        self._thread = threading.get_ident()
        self._known: dict[int, tuple[Any, Pattern]] = {}
        self._words = _Words()
        self._asks = False
        self._trial: _MatchProgress | None = None
        """The match that is going on."""
        self._pending: _Pending | None = None
        """The match that was found last, of which it is not known yet whether it is applied."""

    def hear(self, patches: Patches) -> None:
        """Hear of the calls from now on."""
        matcher, lost = _MATCHER, "Why patterns do not match is not known"
        patches.around(f"{matcher}:PatternMatcherPass.apply", self.pass_, lost)
        patches.around(f"{matcher}:MatchContext.match", self.step, lost)

    def pass_(self, call: Call) -> Any:
        """Hear of ``PatternMatcherPass.apply``: copies of its entries report their outcomes."""
        patterns = call.given(0)
        own = getattr(patterns, "patterns", None)
        if not isinstance(own, dict) or self._asks or not self._is_heard():
            return call()
        copies: dict[int, Any] = {}
        asked: defaultdict[Any, list[Any]] = defaultdict(list)
        for place, entries in own.items():
            for entry in entries:
                if id(entry) not in copies:
                    copies[id(entry)] = self._copy(entry)
                asked[place].append(copies[id(entry)])
        self._begin([self._known[key][1] for key in copies if key in self._known])
        self._asks = True
        try:
            with RestoringStack(mock.patch.object(patterns, "patterns", asked)):
                return call()
        finally:
            self._settle()
            self._asks = False

    def step(self, call: Call) -> Any:
        """Hear of ``MatchContext.match``, which matches a part of a pattern."""
        trial = self._trial
        if trial is None or threading.get_ident() != self._thread:
            return call()
        pattern, node = call.given(1), call.given(2)
        trial.enter(pattern, node)
        found = call()
        trial.leave(pattern, node, found)
        return found

    def _copy(self, entry: Any) -> Any:
        """Return an entry that does the same as another one, and reports it."""
        try:
            if id(entry) not in self._known:
                self._known[id(entry)] = entry, _described(entry)
            pattern = self._known[id(entry)][1]
            copied = copy.copy(entry)
            copied.pattern = _ReportingPattern(
                entry.pattern, functools.partial(self._match, pattern, entry.pattern)
            )
            copied.extra_check = functools.partial(self._check, entry.extra_check)
            copied.apply = functools.partial(self._apply, entry)
        except (AttributeError, TypeError):  # an entry of a foreign class
            return entry
        return copied

    def _match(self, pattern: Pattern, own: Any, *args: Any, **kwargs: Any) -> Any:
        node = next(iter((*args, *kwargs.values())), None)
        if threading.get_ident() != self._thread or not isinstance(node, Node):
            return own.match(*args, **kwargs)
        self._settle()
        trial = self._trial = _MatchProgress(self._words)
        try:
            found = own.match(*args, **kwargs)
        finally:
            self._trial = None
        if found:
            streams = {str((n.meta.get("custom") or {}).get("stream", 0)) for n in found.nodes}
            nodes = trial.nodes or tuple(n.name for n in reversed(found.nodes))
            self._pending = _Pending(pattern, node.name, nodes, len(streams) > 1)
        else:
            failure = trial.failure or _Failure(Outcome.OTHER, "", "", _clipped(str(found)))
            self._tell(pattern, node.name, trial.reached, failure)
        return found

    def _check(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pending = self._pending
        if threading.get_ident() != self._thread or pending is None:
            return own(*args, **kwargs)
        trial = self._trial = _MatchProgress(self._words)
        try:
            answer = own(*args, **kwargs)
        finally:
            self._trial = None
        pending.is_checked = True
        if isinstance(answer, bool | None) and not answer:
            self._pending = None
            self._tell(pending.pattern, pending.node, pending.nodes, _refusal(own, trial))
        return answer

    def _apply(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        pending, self._pending = self._pending, None
        if threading.get_ident() == self._thread and pending is not None:
            self._tell(pending.pattern, pending.node, pending.nodes, _Failure(Outcome.MATCHED))
        return entry.apply(*args, **kwargs)

    def _settle(self) -> None:
        """Report a match that was found and not applied."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        # Torch discards a match that spans writes or streams before it asks its check.
        outcome = Outcome.STREAM if pending.has_streams else Outcome.WRITE
        found = ""
        if pending.is_checked:
            outcome, found = Outcome.OTHER, "its check depends on a size that is not known"
        self._tell(pending.pattern, pending.node, pending.nodes, _Failure(outcome, found=found))

    def _tell(self, pattern: Pattern, node: str, nodes: tuple[str, ...], failure: _Failure) -> None:
        self._tell_of(Attempt(pattern, node, nodes, *failure))


@contextmanager
def patterns_heard(name: str) -> Iterator[PatternAttempts]:
    """Hear the patterns that a pass tries in this thread within the block, outside of a compile."""
    patterns, attempts = list[Pattern](), list[Attempt]()
    with PROCESS_LOCK, RestoringStack() as stack:
        if _MATCHER in sys.modules:  # otherwise there are no patterns
            MatcherRecorder(patterns.extend, attempts.append, lambda: True).hear(Patches(stack))
        yield PatternAttempts(name, patterns, attempts, tuple)


class _ReportingPattern:
    """A pattern with a different ``match``."""

    def __init__(self, pattern: Any, match: Callable[..., Any]) -> None:
        self._pattern, self.match = pattern, match

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def __repr__(self) -> str:
        return repr(self._pattern)


class _Pending:
    """A match that was found."""

    def __init__(self, pattern: Pattern, node: str, nodes: tuple[str, ...], has_streams: bool) -> None:
        self.pattern, self.node, self.nodes, self.has_streams = pattern, node, nodes, has_streams
        self.is_checked = False


class _Failure(NamedTuple):
    """A failed part of a match, in words at once, since nodes change later."""

    outcome: Outcome
    at: str = ""
    wanted: str = ""
    found: str = ""


class _MatchProgress:
    """The progress of one match: the parts of its pattern that match so far, and the first that does not."""

    def __init__(self, words: _Words) -> None:
        self._words = words
        self.failure: _Failure | None = None
        self.reached: tuple[str, ...] = ()
        self._passed: dict[int, str] = {}
        self._around: list[tuple[Any, Any]] = []
        self._known: Any = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose operators match."""
        return tuple(self._passed.values())

    def enter(self, pattern: Any, node: Any) -> None:
        """Begin with a part: the operator, users and arguments of the part around it match."""
        if self._around:
            self._pass(*self._around[-1])
        self._around.append((pattern, node))

    def leave(self, pattern: Any, node: Any, found: Any) -> None:
        """Note the outcome of a part."""
        self._around.pop()
        if found:
            self._pass(pattern, node)
            return
        wrapped = found.args[-1] if found.args else None  # the failure of an item inside that of a list
        is_passed_on = self._known is not None and (found is self._known or wrapped is self._known)
        if not is_passed_on and (self.failure is None or len(self._passed) > len(self.reached)):
            self.failure, self.reached = self._words.failure(pattern, node, found), self.nodes
        self._known = found

    def _pass(self, pattern: Any, node: Any) -> None:
        if is_operator(pattern) and isinstance(node, Node):
            self._passed.setdefault(id(pattern), node.name)


class _Words:
    """Words for parts of patterns that do not match; repeated ones are made once."""

    def __init__(self) -> None:
        self._operators: dict[int, tuple[Any, str]] = {}
        self._targets: dict[Any, str] = {}

    def failure(self, pattern: Any, node: Any, failed: Any) -> _Failure:
        """Return the failure of a part of a pattern that does not match a node."""
        words = str(getattr(failed, "format_string", ""))
        at = node.name if isinstance(node, Node) else ""
        if words.startswith("function_mismatch"):
            if not isinstance(node, Node) or not self._is_called(pattern, node):
                return _Failure(Outcome.OPERATOR, at, self._operators_of(pattern), self._found(node))
            if len(node.args) != len(pattern.args):
                numbers = (counted(len(args), "positional argument") for args in (pattern.args, node.args))
                return _Failure(Outcome.ARGUMENTS, at, *numbers)
            return _Failure(Outcome.ARGUMENTS, at, "arguments by other names", str([*node.kwargs]))
        if words.startswith("multiple_users"):
            return _Failure(
                Outcome.USERS, at, counted(int(pattern.users), "user"), counted(len(node.users), "user")
            )
        if words.startswith("args_structure"):
            return _Failure(Outcome.ARGUMENTS, at, "arguments in another structure", "these")
        if words.startswith("constant_args"):
            came = failed.args[-1]
            found = "a computed value" if isinstance(came, Node) else _clipped(repr(came))
            return _Failure(Outcome.CONSTANT, at, _clipped(repr(failed.kwargs.get("pattern"))), found)
        if words.startswith(("repeated pattern", "exclusive arg")):
            return _Failure(Outcome.REPEATED, at, "", "")
        if words.startswith("no anchor"):
            names = dict.fromkeys(
                self._operators_of(output) for output in pattern.outputs[1:] if output is not None
            )
            return _Failure(Outcome.OUTPUT, at, " or ".join(names), "")
        if words.startswith(("non_list", "list:")):
            return _Failure(Outcome.ARGUMENTS, at, "a list of such values", self._found(node))
        return _Failure(Outcome.OTHER, at, "", f"torch says: {_clipped(str(failed))}")

    @staticmethod
    def _is_called(pattern: Any, node: Node) -> bool:
        """Tell whether a node calls an operator of a pattern."""
        own = getattr(pattern, "_match_fns", None)
        return bool(own(node)) if own is not None else node.target in getattr(pattern, "fns", ())

    def _found(self, node: Any) -> str:
        if not isinstance(node, Node):
            return "a list" if isinstance(node, list | tuple) else _clipped(repr(node))
        if node.op in ("placeholder", "get_attr"):
            return "an input or a weight" if node.op == "placeholder" else "a constant tensor"
        if node.target not in self._targets:
            self._targets[node.target] = _clipped(target_text(node))
        return self._targets[node.target]

    def _operators_of(self, pattern: Any) -> str:
        """Return the operators that a part of a pattern takes, in words."""
        known = self._operators.get(id(pattern))
        if known is None:
            # Held, so that no other pattern gets its id.
            known = self._operators[id(pattern)] = pattern, any_of(names_of(pattern))
        return known[1]


def _refusal(check: Any, trial: _MatchProgress) -> _Failure:
    """Return why a check refuses a match."""
    if trial.failure is not None:
        # It has looked for the pattern once more, with the shapes that it found.
        return trial.failure._replace(outcome=Outcome.SHAPES)
    held = held_by_closure(check)
    if getattr(check, "__qualname__", "").startswith("config_flag.") and isinstance(held.get("name"), str):
        return _Failure(Outcome.SETTING, "", "", str(held["name"]))
    own = held.get("extra_check", check)
    name, place = _name_of(own), _place_of(own)
    return _Failure(Outcome.CHECK, "", "", f"{name} ({place})" if place else name)


def _described(entry: Any) -> Pattern:
    """Return the pattern of an entry."""
    parts = [part for part in parts_of(entry.pattern) if is_operator(part)]
    operators = tuple(any_of(names_of(part)) for part in parts)
    begins = names_of(entry.pattern) or operators[-1:]
    return Pattern(pattern_name(entry), begins, operators)


def pattern_name(entry: Any) -> str:
    """Return the name of a pattern: its own, or that of the function that it searches or that replaces it."""
    searched = held_by_closure(getattr(entry, "extra_check", None)).get("search_fn")
    function = getattr(entry, "handler", None) or searched
    name = getattr(entry, "pattern_name", None) or (_name_of(function) if function is not None else "")
    return str(name) or type(entry).__name__


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__wrapped__", function)


def _name_of(function: Any) -> str:
    """Return the name of a function; if it has no useful one, that of the function that makes it."""
    function = _inner(function)
    name = str(getattr(function, "__name__", type(function).__name__))
    maker = str(getattr(function, "__qualname__", "")).partition(".<locals>")[0]
    return maker if maker and name in _NO_NAMES else name


def _place_of(function: Any) -> str:
    """Return the file and line of a function, relative to torch's installation."""
    code = getattr(_inner(function), "__code__", None)
    if code is None:
        return ""
    file = str(code.co_filename)
    is_of_torch = file.startswith(_TORCH + os.sep)
    file = os.path.relpath(file, _TORCH) if is_of_torch else os.path.basename(file)
    return f"{file}:{code.co_firstlineno}"


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def parts_of(pattern: Any) -> Iterator[Any]:
    """Yield the parts of a pattern, each once, inputs first."""
    seen: set[int] = set()

    def walk(part: Any) -> Iterator[Any]:
        if id(part) in seen or not hasattr(part, "pattern_eq"):
            return
        seen.add(id(part))
        inner = [getattr(part, name, None) for name in ("pattern", "inner_pattern")]
        flat = getattr(part, "flat_args_kwargs", ((),))[0]
        for other in (*flat, *getattr(part, "outputs", ()), *inner):
            yield from walk(other)
        yield part

    yield from walk(pattern)


def is_operator(part: Any) -> bool:
    """Tell whether a part of a pattern matches a call; some that match any value have users too."""
    return hasattr(part, "users") and hasattr(part, "fns")


def names_of(pattern: Any) -> tuple[str, ...]:
    """Return the operators of a part of a pattern, any of which matches."""
    functions = [*getattr(pattern, "fns", ())]
    packets = {id(function) for function in functions if isinstance(function, torch._ops.OpOverloadPacket)}
    names = (
        function if isinstance(function, str) else function_text(function)
        for function in functions
        if id(getattr(function, "overloadpacket", None)) not in packets
    )
    return tuple(dict.fromkeys(names))
