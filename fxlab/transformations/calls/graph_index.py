"""Finds the calls of a graph in their canonical form by name: patterns and passes begin there."""

from collections import defaultdict
from typing import Any

from torch import nn
from torch.fx import Node

from fxlab.base.exchanged import cached_property
from fxlab.operators import describes, is_of_python
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_not_plain
from fxlab.transformations.calls.calls import Calls
from fxlab.transformations.calls.term import Weight


class GraphIndex:
    """The calls of a graph in their canonical form, each read on demand."""

    def __init__(self, facts: GraphFacts, *, only_casts: bool = False) -> None:
        self.facts = facts
        # If only casts are seen through, written copies do not matter.
        is_written = (lambda node: False) if only_casts else (lambda node: facts.writes.is_written(node))
        self.calls = Calls(self._plain_module, is_written, only_casts=only_casts)
        self.position = {node: place for place, node in enumerate(facts.graph_module.graph.nodes)}

    @cached_property
    def by_name(self) -> dict[str, list[Node]]:
        """The calls by name, in the order of the graph, without parts of other calls."""
        found: dict[str, list[Node]] = defaultdict(list)
        parts = set[Node]()
        for node in self.position:
            term = self.calls.term(node)
            if term is not None and len(term.nodes) > 1:
                own = {*term.nodes}
                alike = (each for each in term.nodes[1:] if self._name(each) == term.name)
                parts.update(each for each in alike if own.issuperset(each.users))
        for node in self.position:
            term = self.calls.term(node)
            if term is not None and node not in parts:
                found[term.name].append(node)
        return found

    def _name(self, node: Node) -> str:
        term = self.calls.term(node)
        return "" if term is None else term.name

    def _plain_module(self, node: Node) -> nn.Module | None:
        module = self.facts.module(node)
        if module is None or why_not_plain(module, type(module)) or why_hooked(self.facts, module):
            return None
        return module

    def key(self, value: Any) -> Any:
        """Return a key that is equal for values that are the same tensor, or copies of it."""
        if isinstance(value, Weight):
            return "weight", value.path
        if not isinstance(value, Node):
            return value
        *_, last = self.calls.seen_through(value)
        return ("weight", str(last.target)) if isinstance(last, Node) and last.op == "get_attr" else last

    def readers(self, node: Node) -> list[Node]:
        """Return the users of a node, without guards, assertions, and nodes that only these read."""
        return [user for user in node.users if not _only_checks(user) and not _is_unused_item(user)]


def is_guard(node: Node) -> bool:
    """Tell whether a node only checks something."""
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and (name.startswith("_assert") or "_assert_tensor_metadata" in name)


def _only_checks(node: Node) -> bool:
    """Tell whether a node is a guard, or a number that guards alone read."""
    if is_guard(node):
        return True
    is_told = node.op.startswith("call_") and (describes(node) or is_of_python(node.target))
    return is_told and bool(node.users) and all(map(_only_checks, node.users))


def _is_unused_item(node: Node) -> bool:
    """Tell whether a node takes one of several results, and nothing reads it."""
    return not node.users and node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"
