"""Patterns made of selected nodes."""

import keyword
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node

from fxlab.base.checks import type_error
from fxlab.operators.node_info import known_result
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex, is_guard
from fxlab.transformations.patterns.source import Source, compiled
from fxlab.values.tensors import SYMBOLIC

_NUMBERS = (int, float, *SYMBOLIC, torch.Size)
"""Results that a pattern captures rather than computes."""


class HasGraphModule(Protocol):
    """A session, or any object with a graph module."""

    @property
    def graph_module(self) -> GraphModule:
        """The present graph."""


def pattern_of(
    session: HasGraphModule | GraphModule, nodes: Iterable[Node | str], *, name: str = "pattern"
) -> Callable[..., Any]:
    """Make a pattern of some nodes: a function whose arguments are their inputs.

    Weights and buffers are annotated as ``torch.nn.Parameter``, computed sizes are arguments, and numbers are
    literal. ``inspect.getsource`` returns its source for editing.

    Parameters
    ----------
    session
        A session, whose present model is read, or a graph module.
    nodes
        The nodes, or their names.
    name
        The name of the function.

    Raises
    ------
    TypeError
        If it is no session or graph module, or one of ``nodes`` no node or name.
    ValueError
        If there is no such node, one computes nothing, or one calls a function that is not torch's.

    Examples
    --------
    >>> import inspect
    >>> import torch
    >>> import fxlab
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) * 2 + torch.relu(x.cos()) * 2)
    >>> pattern = fxlab.rewriting.pattern_of(traced, ["relu", "mul"])
    >>> print(inspect.getsource(pattern))
    def pattern(x):
        relu = torch.relu(x)
        mul = relu * 2
        return mul
    <BLANKLINE>
    >>> [match.roots for match in fxlab.rewriting.find_matches(traced, pattern)]
    [(mul,), (mul_1,)]
    """
    graph_module = session if isinstance(session, GraphModule) else getattr(session, "graph_module", None)
    if not isinstance(graph_module, GraphModule):
        raise type_error("session", "a Session or a torch.fx.GraphModule", session)
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"name: expected a name that a function can have, got {name!r}.")
    facts = GraphFacts(graph_module)
    source = Source(facts, _chosen(graph_module, nodes), GraphIndex(facts))
    made: Callable[..., Any] = compiled(source.written(name), name)
    return made


def _chosen(graph_module: GraphModule, nodes: Iterable[Node | str]) -> list[Node]:
    if isinstance(nodes, str | Node):
        nodes = [nodes]
    known = {node.name: node for node in graph_module.graph.nodes}
    names = set[str]()
    for each in nodes:
        if not isinstance(each, Node | str):
            raise type_error("nodes", "nodes or their names", each)
        name = each.name if isinstance(each, Node) else each
        if name not in known:
            raise ValueError(f"nodes: the graph has no node {name!r}.")
        names.add(name)
    chosen = [node for node in graph_module.graph.nodes if node.name in names]
    calls = [node for node in chosen if node.op.startswith("call_") and not _is_number(node)]
    if not calls:
        raise ValueError("nodes: expected nodes that compute something, got inputs and weights alone.")
    return calls


def _is_number(node: Node) -> bool:
    result = known_result(node)
    return isinstance(result, _NUMBERS) or is_guard(node)
