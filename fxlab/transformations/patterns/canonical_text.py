"""The text of a graph in the canonical form of its calls, alike in most dialects, for tests of passes."""

from typing import Any

from torch.fx import GraphModule, Node

from fxlab.base.torch_private import pytree
from fxlab.operators.node_info import function_text
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex, is_guard
from fxlab.transformations.calls.term import Term, Weight


def canonical_text(graph_module: GraphModule) -> str:
    """Return a numbered line for each call that computes something, and one for the outputs."""
    return _Text(GraphIndex(GraphFacts(graph_module))).written()


class _Text:
    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._numbers: dict[Node, str] = {}

    def written(self) -> str:
        lines: list[str] = []
        for node in self._needed():
            if node.op == "placeholder":
                self._numbers[node] = str(node.target)
                continue
            if node.op == "output":
                lines.append(f"return {self._operand(node.args[0])}")
                continue
            text = self._call(node)
            self._numbers[node] = f"%{len(lines)}"
            lines.append(f"%{len(lines)} = {text}")
        return "\n".join(lines)

    def _needed(self) -> list[Node]:
        """Return the nodes that have a line, in their order: those with users or with effects."""
        read: set[Node] = set()
        for node in reversed(self._index.position):
            term = self._index.calls.term(node)
            is_shown = node in read or node.op in ("placeholder", "output") or self._has_effect(node)
            if node.op == "get_attr" or not is_shown or (term is not None and term.is_transparent):
                continue
            read.add(node)
            values = node.all_input_nodes if term is None else _nodes(term.args)
            read.update(each for value in values for each in [self._last(value)] if isinstance(each, Node))
        return [node for node in self._index.position if node in read and node.op != "get_attr"]

    def _has_effect(self, node: Node) -> bool:
        term = self._index.calls.term(node)
        return not is_guard(node) and term is not None and term.is_write

    def _last(self, value: Any) -> Any:
        *_, last = self._index.calls.seen_through(value)
        return last

    def _call(self, node: Node) -> str:
        term = self._index.calls.term(node)
        if term is not None:
            text = self._term(term)
            return text.replace("(", "_(", 1) if term.is_write else text
        name = function_text(node.target) if node.op == "call_function" else str(node.target)
        given = [self._operand(each) for each in node.args]
        return f"{name}({', '.join([*given, *(f'{k}={self._operand(v)}' for k, v in node.kwargs.items())])})"

    def _term(self, term: Term) -> str:
        if "terms" in term.args:
            return f"{term.name}({', '.join(sorted(map(self._operand, term.args['terms'])))})"
        tensors = [self._operand(term.args[key]) for key in ("self", "other") if key in term.args]
        rest = [f"{key}={self._operand(term.args[key])}" for key in sorted({*term.args} - {"self", "other"})]
        return f"{term.name}({', '.join([*tensors, *rest])})"

    def _operand(self, value: Any) -> str:
        if isinstance(value, Node):
            last = self._last(value)
            if isinstance(last, Node):
                return str(last.target) if last.op == "get_attr" else self._numbers.get(last, last.name)
            return self._operand(last)
        if isinstance(value, Term):
            return self._term(value)
        if isinstance(value, Weight):
            return value.path
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self._operand, value))})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key}: {self._operand(each)}' for key, each in value.items())}}}"
        return str(value)


def _nodes(value: Any) -> list[Node]:
    parts = (_nodes(each.args) if isinstance(each, Term) else [each] for each in pytree.tree_leaves(value))
    return [each for part in parts for each in part if isinstance(each, Node)]
