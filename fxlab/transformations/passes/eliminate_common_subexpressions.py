"""Common subexpressions: compute duplicate nodes once."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import is_pure_in_evaluation, why_impure
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_TORCH_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


@dataclass(frozen=True)
class Repetition:
    """A node that repeats the computation of an earlier one."""

    node: Node
    first: Node
    first_is_returned: bool
    """Whether the graph returns the first node's value, or one that shares memory with it."""


@dataclass(frozen=True)
class EliminateCommonSubexpressions(RewritePass[Repetition]):
    """Compute duplicate nodes once: the users of a duplicate read the first result.

    Nodes are duplicates if they call the same target with the same inputs and bit-identical constants. Nodes
    that draw random numbers or have side effects stay, and so do results that are written in place, or
    returned twice: the caller gets two tensors. Nodes that now read another node are marked.

    Examples
    --------
    >>> import torch
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.relu() + x.relu().sum()
    >>> eliminate = EliminateCommonSubexpressions()
    >>> once = eliminate(torch.fx.symbolic_trace(Twice()))
    >>> [node.name for node in once.graph.nodes]
    ['x', 'relu', 'sum_1', 'add', 'output']
    >>> [node.name for node in eliminate(once, reverse=True).graph.nodes]
    ['x', 'relu', 'relu_1', 'sum_1', 'add', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[Repetition]:
        """Yield the nodes that repeat an earlier one, also after rewrites of others."""
        firsts: dict[Hashable, Node] = {}
        stands_for: dict[Node, Node] = {}
        returned: set[Node] = set()
        for node in list(facts.graph_module.graph.nodes):
            key = _key(node, stands_for, facts)
            if key is None or why_impure(node, facts):
                continue
            first = firsts.get(key)
            candidate = None if first is None else Repetition(node, first, first in returned)
            if candidate is None or self.why_not(candidate, facts):
                firsts[key] = node
            else:
                stands_for[node] = candidate.first
            if facts.writes.is_returned(node):
                returned.add(stands_for.get(node, node))
            if candidate is not None:
                yield candidate

    def refuse(self, candidate: Repetition, facts: GraphFacts) -> Refusal | None:
        """Refuse values that may have changed in between, and those that must stay two."""
        node, first, writes = candidate.node, candidate.first, facts.writes
        if not node.users:
            return Reason.UNUSED()
        if not writes.same_state(first, node):
            return Reason.MODE_CHANGES_IN_BETWEEN(first=first.name, last=node.name)
        if node.op == "get_attr":
            return None
        module = facts.module(node)
        tensors = () if module is None else (*module.parameters(), *module.buffers())
        if any(map(writes.is_tensor_written, tensors)):
            return Reason.STATE_WRITTEN()
        for value, then in zip(node.all_input_nodes, first.all_input_nodes, strict=True):
            if writes.epoch(value, node) != writes.epoch(then, first):
                return writes.why_written(value, first, node)
        if node in facts.numbers and first in facts.numbers:
            return None
        for value in (first, node):
            if writes.is_written(value):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        if candidate.first_is_returned and writes.is_returned(node):
            returned = facts.graph_module.graph.output_node().all_input_nodes
            if node in returned and first in returned:
                return Reason.BOTH_RETURNED(first=first.name)
            return Reason.BOTH_ALIASED(first=first.name)
        return None

    def behaves_by_mode(self, candidate: Repetition, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the call of a dropout or a batch norm."""
        return (candidate.node,) if is_pure_in_evaluation(candidate.node, facts) else ()

    def describe(self, candidate: Repetition) -> str:
        """Name the first."""
        return f"removed; {candidate.first.name} is read instead"

    def rewrite(self, candidate: Repetition, edit: Editor) -> tuple[Node, ...]:
        """Replace the node by the first equal one in its users."""
        readers = edit.read_instead(candidate.node, candidate.first)
        edit.erase(candidate.node)
        return readers


def _key(node: Node, stands_for: dict[Node, Node], facts: GraphFacts) -> Hashable | None:
    """Return a key that is equal for nodes that compute the same; ``None`` if unknown."""
    if node.op in ("placeholder", "output"):
        return None
    called: Any = facts.module(node) if node.op == "call_module" else node.target
    try:
        key = (node.op, called, _frozen(node.args, stands_for), _frozen(dict(node.kwargs), stands_for))
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: Any, stands_for: dict[Node, Node]) -> Hashable:
    """Return a key that is equal only for equal arguments (``1`` is not ``True``); TypeError for objects."""
    if isinstance(value, Node):
        return stands_for.get(value, value)
    if isinstance(value, tuple | list):
        return (type(value), *(_frozen(part, stands_for) for part in value))
    if isinstance(value, dict):
        return (type(value), *((name, _frozen(part, stands_for)) for name, part in sorted(value.items())))
    if isinstance(value, slice):
        return (slice, *(_frozen(part, stands_for) for part in (value.start, value.stop, value.step)))
    if type(value) in _CONSTANTS:
        return type(value), repr(value)  # 0.0 is not -0.0, and nan is nan
    if isinstance(value, _TORCH_CONSTANTS):
        return value
    raise TypeError(f"{value!r} cannot be compared.")
