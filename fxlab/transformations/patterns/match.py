"""A place at which a pattern matches, for conditions of a pass; and the reasons why it must stay."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.models.running.running import value_on_inputs
from fxlab.operators.node_info import attribute_at, known_result, known_shape
from fxlab.transformations.analysis.aliasing_and_writes import why_not_the_same, written_inputs
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.calls.term import Weight
from fxlab.transformations.patterns.captured import PartialMatch, Size, nodes_in
from fxlab.transformations.patterns.pattern import Pattern
from fxlab.transformations.patterns.replacing import Replacement

_VIEWS = frozenset({"reshape", "permute", "slice", "select", "unsqueeze", "expand"})


@dataclass(frozen=True, eq=False)
class Match:
    """A place at which a pattern matches; the argument of conditions (``where``).

    ``match["x"]`` is the value that the argument ``x`` captured: a node, a number, a parameter or buffer of a
    module that is called, or ``None`` for an absent optional argument.
    """

    pattern: Pattern = field(repr=False)
    roots: tuple[Node, ...]
    """The results, which the replacement replaces."""
    nodes: tuple[Node, ...]
    """All nodes that the pattern stands for, in the order of the graph."""
    captured: Mapping[str, Any]
    found: PartialMatch = field(repr=False)
    index: GraphIndex = field(repr=False)
    excluded: Refusal | None = field(default=None, repr=False)
    """The unmet condition."""
    moved: dict[Node, Node] = field(default_factory=dict, repr=False)
    """The replacements of nodes by earlier rewrites."""

    def __getitem__(self, name: str) -> Any:
        """Return the captured value of an argument."""
        if name not in self.captured:
            raise KeyError(f"The pattern has no argument {name!r}. It has: {', '.join(self.captured)}.")
        value = self.captured[name]
        if isinstance(value, Weight):
            return attribute_at(self.index.facts.graph_module, value.path)
        return value.value if isinstance(value, Size) else value

    def shape(self, name: str) -> tuple[Any, ...] | None:
        """Return the shape of an argument's captured value, if it is known.

        Where the graph tells none, that is its shape on the inputs of the session.
        """
        value = self[name]
        known = known_shape(value) if isinstance(value, Node) else None
        return getattr(self._on_inputs(value), "shape", None) if known is None else known

    def dtype(self, name: str) -> torch.dtype | None:
        """Return the dtype of an argument's captured value, if it is known, as its shape."""
        value = self[name]
        known = known_dtype(value) if isinstance(value, Node) else None
        return getattr(self._on_inputs(value), "dtype", None) if known is None else known

    def _on_inputs(self, value: Any) -> Any:
        return value_on_inputs(self.index.facts.graph_module, value) if isinstance(value, Node) else value

    @property
    def inner(self) -> list[Node]:
        """The nodes that are no results, last first."""
        return [node for node in reversed(self.nodes) if node not in self.roots]


def _stays(node: Node, match: Match) -> bool:
    """Tell whether a node is left for its other users: a constant, or a view of one that stays too."""
    term = match.index.calls.term(node)
    if not node.all_input_nodes:  # a constant
        return True
    if term is None or not (term.name in _VIEWS or term.is_transparent):
        return False
    inside = [value for value in node.all_input_nodes if value in match.found.nodes]
    return all(_stays(value, match) for value in inside)


def why_used_elsewhere(match: Match, facts: GraphFacts) -> Refusal | None:
    """Return why nodes of a match must stay; ``None`` if nothing else needs them."""
    own = {*match.nodes}
    for node in match.inner:
        others = [user for user in match.index.readers(node) if user not in own]
        if others and not _stays(node, match):
            return Reason.OTHER_USERS(value=node.name)
        if facts.writes.is_written(node) and not _is_written_inside(node, match, facts):
            return Reason.WRITTEN_IN_PLACE(value=node.name)
        if getattr(node.target, "__name__", str(node.target)).startswith("detach"):
            value = known_result(node.all_input_nodes[0]) if node.all_input_nodes else None
            if getattr(value, "requires_grad", True) is not False:
                return Reason.DETACHED(value=node.name)
    return None


def _is_written_inside(node: Node, match: Match, facts: GraphFacts) -> bool:
    """Tell whether a value that is written is new in the match, and read by nothing else."""
    own = {*match.nodes}
    is_own = all(user in own for user in match.index.readers(node))
    outside = {value for each in own for value in each.all_input_nodes} - own
    return is_own and not any(facts.writes.may_share_memory(node, value) for value in outside)


def place_of_replacement(match: Match) -> Node | Refusal:
    """Return the node before which the replacement is computed, or why there is none."""
    if len(match.roots) == 1:
        return match.roots[0]
    position = match.index.position
    own = {*match.nodes}
    last = max(match.roots, key=position.__getitem__)
    users = [user for root in match.roots for user in root.users if user not in own]
    early = min(users, key=position.__getitem__, default=None)
    if early is None or position[early] > position[last]:
        return last
    for value in match.captured.values():
        for node in nodes_in(value):
            if position[node] > position[early]:
                return Reason.OTHER_ORDER(value=node.name, user=early.name)
    return early


def why_written(match: Match, facts: GraphFacts) -> Refusal | None:
    """Return why inputs of the match may have changed at the place of the replacement."""
    place = place_of_replacement(match)
    if isinstance(place, Refusal):
        return place
    own = [*match.nodes]
    for node in own:
        if any(value not in match.found.nodes for value in written_inputs(node, facts.graph_module)):
            return Reason.MAY_WRITE_INPUTS()
    for value in dict.fromkeys(each for given in match.captured.values() for each in nodes_in(given)):
        readers = [node for node in own if value in node.all_input_nodes]
        first = min(readers, key=match.index.position.__getitem__, default=match.nodes[0])
        for last in {place, match.nodes[-1]}:
            early, late = sorted((first, last), key=match.index.position.__getitem__)
            if reason := why_not_the_same({value: early}, late, facts.writes):
                return reason
    weights = [match[name] for name, value in match.captured.items() if isinstance(value, Weight)]
    return Reason.STATE_WRITTEN() if any(map(facts.writes.is_tensor_written, weights)) else None


def why_aliased(match: Match, replacement: Replacement, facts: GraphFacts) -> Refusal | None:
    """Return why a result must stay a new tensor, or one of an input."""
    for root, output in zip(match.roots, replacement.outputs, strict=True):
        name = replacement.passed_on(output)
        values = nodes_in(match.captured.get(name)) if name else []
        if values and isinstance(output, Node) and output.op == "placeholder":
            same = all(facts.writes.may_share_memory(root, value) for value in values)
            if not same and facts.writes.is_returned(root):
                return Reason.RETURNED()
        for value in values:
            if not facts.writes.may_share_memory(root, value) and (
                facts.writes.is_written(root) or facts.writes.is_written(value)
            ):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        captured = [node for given in match.captured.values() for node in nodes_in(given)]
        shares = (facts.writes.may_share_memory(root, node) for node in captured)
        if not values and facts.writes.is_written(root) and any(shares):
            return Reason.WRITTEN_IN_PLACE(value=root.name)
    return None
