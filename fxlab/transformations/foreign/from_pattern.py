"""A pattern, and what is put in its place, as a transformation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx import Graph, GraphModule
from torch.fx.passes.utils.matcher_utils import InternalMatch
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

from fxlab.checks import items_of
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

    @property
    def description(self) -> str:
        """The names of the pattern and of its replacement."""
        words = f"Replace {name_of(self.pattern)} by {name_of(self.replacement)}."
        return self.replacement.__doc__ or self.pattern.__doc__ or words

    def apply(self, graph_module: GraphModule) -> None:
        """Replace what matches."""
        replaced = replace_pattern_with_filters(
            graph_module,
            self.pattern,
            self.replacement,
            list(self.match_filters),
            ignore_literals=self.ignore_literals,
        )
        for match in replaced:
            meta = match.nodes_map[match.anchor].meta
            inherited = {key: meta[key] for key in _KEPT_META if key in meta}
            for node in match.replacements:
                node.meta = {**inherited, **node.meta}


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

    The work is done by ``torch.fx.subgraph_rewriter``, whose documentation says what a pattern matches.

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
