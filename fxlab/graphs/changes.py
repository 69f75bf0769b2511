"""Counts of the changes that a pass has made in a graph, for sessions, verdicts and cards of passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from fxlab.base.checks import check_is
from fxlab.base.first_use import pd
from fxlab.base.results import Result
from fxlab.base.words import counted
from fxlab.graphs.graph_diff import changes_by_name
from fxlab.graphs.unfolded import unfolded
from fxlab.models.graph_modules.parts import Requirement
from fxlab.operators.node_info import kind_text, modules_by_path
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.journal.journal import Journal
from fxlab.transformations.journal.journaled import JournaledTransformation
from fxlab.transformations.journal.name_order import moved_nodes

_MOST_KINDS = 3


@dataclass(frozen=True, repr=False)
class Changes(Result):
    """The rewrites of a pass: their number, and the nodes before and after; as text, one sentence.

    Every screen, table, report and command uses these words.

    Examples
    --------
    >>> print(Changes(12, {"linear": 36}, {"linear": 12}))
    12 rewrites: 36 linears become 12
    >>> print(Changes(2, {"conv": 2, "batch norm": 2}, {"conv": 2}))
    2 rewrites: 2 convs and 2 batch norms become 2 convs
    >>> print(Changes(25, {"dropout": 25}, {}), Changes(None, {"gelu": 1}, {"gelu": 1}), sep="; ")
    25 rewrites: 25 dropouts removed; 1 gelu changed
    >>> print(Changes(0, {}, {}), Changes(3, {}, {}, moved=5), sep="; ")
    no changes; 3 rewrites: 5 nodes moved
    """

    rewrites: int | None
    """Their number; ``None`` for a pass that does not tell its rewrites apart."""
    before: dict[str, int]
    """Kind -> number of replaced nodes of the stage below."""
    after: dict[str, int]
    """Kind -> number of nodes that stand for them."""
    moved: int = 0
    """The number of moved nodes, if nothing else changed."""
    nearest: str = ""
    """Without rewrites, the nearest place, and why it stays."""
    replaced: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = field(
        default=(), compare=False, repr=False
    )
    """The nodes that each rewrite removes and adds; all in one if rewrites are not told apart."""

    @property
    def table(self) -> pd.DataFrame:
        """A row for each rewrite: the names of the nodes that it has ``removed`` and ``added``."""
        rows = [tuple(map(", ".join, pair)) for pair in self.replaced]
        return pd.DataFrame(rows, columns=["removed", "added"])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON or an experiment tracker."""
        rows = [{"removed": [*removed], "added": [*added]} for removed, added in self.replaced]
        return super().as_dict() | {"replaced": rows}

    def __bool__(self) -> bool:
        return bool(self.rewrites or self.before or self.after or self.moved)

    @property
    def removed(self) -> tuple[str, ...]:
        """The names of all nodes that rewrites remove."""
        return tuple(name for removed, _ in self.replaced for name in removed)

    @property
    def added(self) -> tuple[str, ...]:
        """The names of all nodes that rewrites add."""
        return tuple(name for _, added in self.replaced for name in added)

    @property
    def nodes(self) -> str:
        """The nodes before and after, without the number of rewrites."""
        before, after = counted_kinds(self.before), counted_kinds(self.after)
        if self.moved:
            return f"{counted(self.moved, 'node')} moved"
        if self.before == self.after:
            return f"{before} changed" if before else ""
        if not self.before or not self.after:
            return f"{before} removed" if before else f"{after} added"
        if self.before.keys() == self.after.keys() and len(self.before) == 1:
            (after,) = (f"{count:,}" for count in self.after.values())
        return f"{before} {'becomes' if sum(self.before.values()) == 1 else 'become'} {after}"

    def __str__(self) -> str:
        if not self:
            return f"no changes: {self.nearest}" if self.nearest else "no changes"
        rewrites = "" if self.rewrites is None else counted(self.rewrites, "rewrite")
        return ": ".join(filter(None, (rewrites, self.nodes)))


def changes_made(below: GraphModule, above: GraphModule, pass_: Transformation | None = None) -> Changes:
    """Count the changes that a pass, or several, made to the stage below.

    The journal knows which nodes were replaced by which. Without a journal, the graphs are compared.

    Parameters
    ----------
    below, above
        The stage below the pass, and the one above it.
    pass_
        The pass; left out for several.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import MergeLinears
    >>> class Projections(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
    ...
    ...     def forward(self, x):
    ...         return self.query(x) * self.key(x)
    >>> model, merge = Projections(), MergeLinears()
    >>> print(changes_made(torch.fx.symbolic_trace(model), merge(torch.fx.symbolic_trace(model)), merge))
    1 rewrite: 2 linears become 1
    """
    check_is(GraphModule, below, "below")
    check_is(GraphModule, above, "above")
    if pass_ is not None:
        check_is(Transformation, pass_, "pass_")
    below, above = unfolded(below), unfolded(above)
    rewrites: int | None = None
    if isinstance(pass_, JournaledTransformation | CandidatePass):
        # Only one pass of a signature can be on, so all of its records were made between the two.
        records = [r for r in Journal.of(above).records if r.signature == pass_.signature]
        # Others change what is passed to a body for the sake of a candidate in it.
        records = [record for record in records if record.candidate or record.is_opaque]
        replaced = set[str]().union(*(record.replaced for record in records))
        standing = set[str]().union(*(record.stand_ins for record in records))
        pairs = [(record.replaced, record.stand_ins) for record in records]
        if not any(record.is_opaque for record in records):
            rewrites = len(records)
    else:
        changes = changes_by_name(below, above)
        replaced = {name for name, change in changes.items() if change in ("removed", "changed")}
        standing = {name for name, change in changes.items() if change in ("added", "changed")}
        pairs = [(replaced, standing)] if replaced or standing else []
    before, after = _count_kinds(below, replaced), _count_kinds(above, standing)
    moved = 0 if before or after else len(moved_nodes(below, above))
    places = [{node.name: place for place, node in enumerate(each.graph.nodes)} for each in (below, above)]
    made = tuple((_in_order(names, places[0]), _in_order(others, places[1])) for names, others in pairs)
    return Changes(rewrites, before, after, moved=moved, replaced=made)


def _in_order(names: set[str], places: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(names & places.keys(), key=places.__getitem__))


def _count_kinds(graph_module: GraphModule, names: Container[str]) -> dict[str, int]:
    """Count nodes by their kinds, the most frequent first; checks and unknown names do not count."""
    modules = modules_by_path(graph_module)
    nodes = (node for node in graph_module.graph.nodes if node.name in names)
    asked = (node for node in nodes if not isinstance(modules.get(str(node.target)), Requirement))
    return dict(Counter(kind_text(node, modules) for node in asked).most_common())


def kinds_by_name(graph_module: GraphModule) -> dict[str, str]:
    """Return the kind of each node of a graph in words, by the node's name."""
    graph_module = unfolded(graph_module)
    modules = modules_by_path(graph_module)
    return {node.name: kind_text(node, modules) for node in graph_module.graph.nodes}


def counted_kinds(counts: dict[str, int]) -> str:
    """Return counts of kinds in words: ``53 convs and 53 batch norms``."""
    kinds = [counted(count, kind) for kind, count in counts.items()]
    if len(kinds) > _MOST_KINDS:
        rest = sum(list(counts.values())[_MOST_KINDS - 1 :])
        kinds = [*kinds[: _MOST_KINDS - 1], counted(rest, "other node")]
    *first, last = kinds or [""]
    return f"{', '.join(first)} and {last}" if first else last
