"""One pattern tried at one node, and its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, unique

from fxlab.base.units import counted


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
