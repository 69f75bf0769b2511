"""Values that a pattern captures, their comparison and words, and the matches that hold them."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import statically_known_true
from fxlab.operators.node_info import known_result
from fxlab.transformations.calls.term import Term, Weight


@dataclass(frozen=True)
class AbsorbedTerms:
    """A sum or a product of several values that one argument captures."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Size:
    """A size that a call gives as -1, or that follows from its result."""

    node: Node
    dim: int
    value: Any


@dataclass(frozen=True)
class CallInPlaceOfModule:
    """The calls of a graph that compute the same as a module of a pattern."""

    input: Node
    nodes: tuple[Node, ...]
    """In the order of the graph; the last is the result."""


def nodes_in(value: Any) -> list[Node]:
    """Return the nodes in a captured value."""
    if isinstance(value, AbsorbedTerms):
        return nodes_in(value.values)
    if isinstance(value, tuple | list):
        return [node for each in value for node in nodes_in(each)]
    if isinstance(value, Size):
        return [value.node]
    return [value] if isinstance(value, Node) else []


def open_sizes_in(value: Any) -> list[Size]:
    """Return the sizes in a captured value that are known only when the graph runs."""
    if isinstance(value, tuple | list):
        return [size for each in value for size in open_sizes_in(each)]
    return [value] if isinstance(value, Size) and not isinstance(value.value, int) else []


def has_nodes(value: Any) -> bool:
    """Tell whether a value of a pattern is more than a literal."""
    if isinstance(value, tuple | list):
        return any(map(has_nodes, value))
    return isinstance(value, Node | Term)


def number_of(value: Any) -> Any:
    """Return the known number of a value; ``None`` if there is none."""
    if isinstance(value, Size):
        return value.value
    if isinstance(value, Term):  # a power
        base, exponent = map(number_of, value.args.values())
        return base**exponent if base and exponent is not None else None
    if not isinstance(value, Node):
        return value
    if value.target is torch.sym_float:  # traces leave its result open
        number = number_of(value.args[0])
        return None if number is None else torch.sym_float(number)
    return known_result(value)


def is_same_number(a: Any, b: Any) -> bool:
    """Tell whether two numbers are known to be the same."""
    if a is None or b is None:
        return False
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, float | int) and isinstance(b, float | int) and math.isclose(a, b, rel_tol=1e-12)
    if a is b:
        return True
    return bool(statically_known_true(a == b))


def text_of(value: Any) -> str:
    """Return the words for a value in a reason."""
    if value is None:
        return "none"
    if isinstance(value, Node | Term):
        return value.name
    if isinstance(value, Weight):
        return value.path
    if isinstance(value, Size):
        return str(value.value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text_of, value))})"
    return str(value)


@dataclass
class PartialMatch:
    """A match, or the part of one found so far."""

    captured: dict[str, Any] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    """The nodes that compute it, in the order in which they were found."""
    values: dict[Node, Any] = field(default_factory=dict)
    """The values for the nodes of the pattern."""
    reached: int = 0
    modules: dict[str, str | CallInPlaceOfModule] = field(default_factory=dict)
    """The paths of modules, or the calls that compute the same, by their paths in the pattern."""
    unresolved: tuple[tuple[Node | Term, Any], ...] = ()
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
