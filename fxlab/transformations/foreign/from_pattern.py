"""A pattern, and what is put in its place, as a transformation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.utils.matcher_utils import InternalMatch
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

from fxlab.checks import items_of
from fxlab.transformations.analysis.aliasing_and_writes import Writes, written_inputs
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same
from fxlab.transformations.foreign.from_callable import (
    OpaqueTransformation,
    check_callable,
    check_promises,
    name_of,
)

MatchFilter = Callable[[InternalMatch, Graph, Graph], bool]
_KEPT_META = ("nn_module_stack", "stack_trace")
"""What a replacement inherits, so that it stands where the nodes stood that it replaces."""


@dataclass(frozen=True)
class PatternTransformation(OpaqueTransformation):
    """A pattern and its replacement; made by :func:`from_pattern`."""

    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    match_filters: tuple[MatchFilter, ...]
    ignore_literals: bool
    name: str
    preserves_computation: bool = False

    writes_tensors = False
    removal = "would be replaced"

    @property
    def description(self) -> str:
        """The names of the pattern and of its replacement."""
        words = f"Replace {name_of(self.pattern)} by {name_of(self.replacement)}."
        return self.replacement.__doc__ or self.pattern.__doc__ or words

    def apply(self, graph_module: GraphModule) -> None:
        """Replace what matches."""
        matches = _Matches(graph_module, self.replacement)
        replaced = replace_pattern_with_filters(
            graph_module,
            self.pattern,
            self.replacement,
            [*self.match_filters, matches.may_be_replaced],
            ignore_literals=self.ignore_literals,
            replacement_callback=matches.brought_up_to_date,
        )
        matches.forget()
        for match in replaced:
            meta = match.nodes_map[match.anchor].meta
            inherited = {key: meta[key] for key in _KEPT_META if key in meta}
            for node in match.replacements:
                node.meta = {**inherited, **node.meta}


class _Matches:
    """The matches of a pattern: which of them may be replaced, and what they are given.

    Parameters
    ----------
    graph_module
        The module in which they are found.
    replacement
        What they are replaced by.
    """

    def __init__(self, graph_module: GraphModule, replacement: Callable[..., Any]) -> None:
        made = replacement if isinstance(replacement, GraphModule) else fx.symbolic_trace(replacement)
        self._replacement = made.graph
        self._graph_module = graph_module
        self._writes = Writes(graph_module)
        self._matches: list[InternalMatch] = []
        self._readers: dict[Node, Node] | None = None
        """For nodes that a match returns and a list holds, one that reads it, and then its replacement."""

    def may_be_replaced(self, match: InternalMatch, graph: Graph, pattern_graph: Graph) -> bool:
        """Tell whether a match reads the same where its replacement would stand: before its first user."""
        own = {node for node in match.nodes_map.values() if isinstance(node, Node)}
        own -= {node for node in match.placeholder_nodes if isinstance(node, Node)}
        users = [user for node in match.returning_nodes for user in node.users]
        if users and not any(written_inputs(node, self._graph_module) for node in own):
            values = {value for node in own for value in node.all_input_nodes} - own
            if why_not_the_same(first_readers(values, own), min(users), self._writes):
                return False
        self._matches.append(match)
        return True

    def brought_up_to_date(self, match: InternalMatch, graph: Graph, pattern_graph: Graph) -> Graph:
        """Exchange what is replaced by now in lists that a match is given, as torch does elsewhere.

        What it returns is the replacement.
        """
        if self._readers is None:
            self._readers = self._read(graph)
        if self._readers:
            now = {node: reader.args[0] for node, reader in self._readers.items()}
            given: list[Any] = match.placeholder_nodes
            for place, value in enumerate(given):
                if not isinstance(value, Node):
                    given[place] = map_arg(value, lambda node: now.get(node, node))
        return self._replacement

    def forget(self) -> None:
        """Erase the nodes that only told what was replaced by what."""
        for reader in (self._readers or {}).values():
            reader.graph.erase_node(reader)

    def _read(self, graph: Graph) -> dict[Node, Node]:
        held: set[Node] = set()
        given: list[Any] = [value for match in self._matches for value in match.placeholder_nodes]
        map_arg([value for value in given if not isinstance(value, Node)], held.add)
        returned = dict.fromkeys(node for match in self._matches for node in match.returning_nodes)
        with graph.inserting_before(graph.output_node()):
            return {node: graph.call_function(id, (node,)) for node in returned if node in held}


def from_pattern(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    match_filters: Iterable[MatchFilter] = (),
    ignore_literals: bool = False,
    name: str | None = None,
    preserves_computation: bool = False,
) -> PatternTransformation:
    """Make a reversible transformation of a pattern and what to put in its place.

    The work is done by ``torch.fx.subgraph_rewriter``, whose documentation says what a pattern matches. A
    match stays where something that it reads is written before its result is used.

    Parameters
    ----------
    pattern, replacement
        Functions of the same arguments, or graph modules. They are traced with
        ``torch.fx.symbolic_trace``.
    match_filters
        Functions of a match, the graph and the pattern's graph; a match that one of them returns false
        for is left alone.
    ignore_literals
        Whether numbers in the pattern stand for any number.
    name
        A short name for people; made of those of the two functions if left out.
    preserves_computation
        Whether the replacement computes the same as the pattern, up to rounding.

    Raises
    ------
    TypeError
        If one of the two cannot be called, or a filter cannot.
    ValueError
        If one of the two cannot be traced, or they do not take and return as many values.

    Examples
    --------
    >>> import torch
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> def relu(x):
    ...     return torch.relu(x)
    >>> def sigmoid(x):
    ...     return torch.sigmoid(x)
    >>> transformation = from_pattern(relu, sigmoid)
    >>> transformation.get_transformed_nodes(transformation(traced))
    [sigmoid]
    """
    filters = items_of(match_filters, "match_filters", "functions of a match and two graphs")
    check_promises(name, ignore_literals=ignore_literals, preserves_computation=preserves_computation)
    arguments = {"pattern": pattern, "replacement": replacement}
    for argument, given in arguments.items():
        check_callable(given, argument)
    for match_filter in filters:
        check_callable(match_filter, "match_filters")
    numbers = [_numbers_of_values(given, argument) for argument, given in arguments.items()]
    if numbers[0] != numbers[1]:
        (takes, returns), (also_takes, also_returns) = numbers
        raise ValueError(
            f"replacement: expected to take {takes} and return {returns} values, as pattern does, but it "
            f"takes {also_takes} and returns {also_returns}."
        )
    name = name or f"{name_of(pattern)}-to-{name_of(replacement)}"
    return PatternTransformation(pattern, replacement, filters, ignore_literals, name, preserves_computation)


def _numbers_of_values(given: Callable[..., Any], argument: str) -> tuple[int, int]:
    """Return how many values a pattern takes and returns."""
    try:
        graph = given.graph if isinstance(given, GraphModule) else fx.symbolic_trace(given).graph
    except Exception as error:  # tracing runs the function
        raise ValueError(f"{argument}: {name_of(given)} cannot be traced: {error}") from error
    (output,) = graph.find_nodes(op="output")
    returned = output.args[0]
    count = len(returned) if isinstance(returned, tuple | list) else 1
    return len(graph.find_nodes(op="placeholder")), count
