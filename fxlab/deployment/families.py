"""Graphs that are there, by the kind of call that they are for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from fxlab.deployment.calls import Call
from fxlab.deployment.model_marks import ModelMarks
from fxlab.deployment.traced_call import TracedCall
from fxlab.deployment.transformed_graph import TransformedGraph
from fxlab.values.nested import Path


@dataclass(eq=False)
class HeldGraph:
    """A graph, as the passes that are on have made it."""

    traced: TracedCall
    words: str
    """The arguments that it was traced on."""
    mode: str
    """Whether the model trains, and the like."""
    versions: tuple[int, ...]
    """The versions of the model's tensors when it was traced."""
    hits: int = 0
    made: TransformedGraph | None = None
    made_for: tuple[object, tuple[int, ...]] | None = None
    """The switches and the versions of the model's tensors that it was transformed for."""
    has_effects: bool = False

    def holds(self, call: Call, marks: ModelMarks) -> bool:
        """Tell whether it may hold for a call, which the graph itself decides in the end."""
        is_stale = self.traced.holds_values and self.versions != marks.versions
        return not is_stale and self.traced.holds(call)

    def facts(self) -> tuple[int, str, str, str]:
        """Return the number of nodes, the passes, the verdict and why passes were left off."""
        made = self.made
        if made is None:
            return len(self.traced.graph_module.graph.nodes), "", "", ""
        return len(made.module.graph.nodes), ", ".join(made.passes), made.verdict, "; ".join(made.notes)

    def made_now(self, state: object, marks: ModelMarks) -> TransformedGraph | None:
        """Return what passes have made of it, unless these were switched, or weights written, since then."""
        if self.made is None or self.made_for is None or self.made_for[0] is not state:
            return None
        is_stale = self.made.makes_tensors and self.made_for[1] != marks.versions
        return None if is_stale else self.made


@dataclass
class EagerCalls:
    """Calls that run eagerly, for one reason."""

    words: str
    mode: str
    reason: str
    hits: int = 0
    is_final: bool = True
    """Whether nothing more is traced for them."""


@dataclass
class Family:
    """The graphs of calls that differ in sizes, data or integers only."""

    numbers: dict[Path, int]
    """The integers of the first call."""
    graphs: list[HeldGraph] = field(default_factory=list)
    latest: dict[Hashable, HeldGraph] = field(default_factory=dict)
    """The graph that has held for a pattern of sizes last."""
    followed: set[Path] = field(default_factory=set)
    """Where calls differ in an integer."""
    eager: EagerCalls | None = None
    """The calls that no graph holds for, once there is a reason to trace no more."""
    changes_model: bool = False
    """Whether the model's own code changes the model, in such a call."""

    def emptied(self) -> Family:
        """Return the same family without graphs."""
        return Family(self.numbers, eager=self.eager, changes_model=self.changes_model)

    def candidates(self, call: Call, marks: ModelMarks) -> Iterator[HeldGraph]:
        """Yield the graphs that may hold for a call, the likeliest first."""
        first = self.latest.get(call.pattern)
        if first is not None and first.holds(call, marks):
            yield first
        for graph in self.graphs:
            if graph is not first and graph.holds(call, marks):
                yield graph

    def follow(self, call: Call, changing: set[Path]) -> tuple[Path, ...]:
        """Return the integers that the next graph is to follow: those in which calls differ, or will."""
        for path, value in call.numbers:
            if value >= 0 and (path in changing or self.numbers.get(path) != value):
                self.followed.add(path)
        here = {path for path, value in call.numbers if value >= 0}
        return tuple(sorted(self.followed & here, key=repr))
