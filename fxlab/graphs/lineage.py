"""Corresponding nodes of two captures of one model, such as before and after decomposition, for matching."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.torch_private import OpOverload
from fxlab.graphs.line_diff import in_order, numbered
from fxlab.models.graph_modules.parts import have_one_naming
from fxlab.operators.node_info import ancestry, frames_of, kind_text, module_path, modules_by_path
from fxlab.transformations.journal.journal import Journal

_CALLS = ("call_function", "call_method", "call_module")


@dataclass
class Lineage:
    """The origins of the nodes of one graph in another."""

    origins: dict[Node, list[Node]] = field(default_factory=dict)
    """Node of the second graph -> those of the first that it comes from, in their order."""
    pairs: dict[Node, Node] = field(default_factory=dict)
    """Node of the second -> the one of the first that ends the same step, so that both compute the same."""


def lineage(original: GraphModule, transformed: GraphModule) -> Lineage:
    """Find where the nodes of a graph come from in another capture of the same model.

    Torch's note in ``meta["from_node"]`` decides. Without one, calls belong to one step if the same line made
    them in the same call of a module; several calls of a step are paired by kind, in their order. If passes
    made one graph from the other, the lineage matters only where names say nothing.
    """
    found = _by_ancestry(original, transformed)
    _by_place(original, transformed, found)
    _by_path(original, transformed, found)
    return found


def is_made_of(original: GraphModule, transformed: GraphModule) -> bool | None:
    """Tell whether a graph is a copy of another, changed by passes; ``None`` if unknown.

    Two captures of one model share many names, but the calls of these may differ.
    """
    known = have_one_naming(original, transformed)
    if known is not None:
        return known
    return bool(Journal.of(transformed).records) or str(original.graph) == str(transformed.graph) or None


def are_mostly_alike(original: GraphModule, transformed: GraphModule) -> bool:
    """Tell whether at least half of the calls of a graph have a namesake in another that is the same call."""
    named = {node.name: node for node in original.graph.nodes}
    calls = [node for node in transformed.graph.nodes if node.op in _CALLS]
    alike = [node for node in calls if (other := named.get(node.name)) and _place(node) == _place(other)]
    return 2 * len(alike) >= len(calls)


def is_same_capture(original: GraphModule, transformed: GraphModule) -> bool:
    """Tell without a run whether the names of two graphs are those of one capture."""
    known = is_made_of(original, transformed)
    if known or (known is None and are_mostly_alike(original, transformed)):
        return True
    for graph_module in (original, transformed):
        if not any(_is_placed(node) for node in graph_module.graph.nodes if node.op in _CALLS):
            return True
    return _dialect(original) == _dialect(transformed) and not _by_ancestry(original, transformed).pairs


def _dialect(graph_module: GraphModule) -> tuple[str, bool]:
    """Return how a graph was captured, and whether most of its calls are those of ATen."""
    rung = str(getattr(graph_module.meta.get("trace"), "rung", ""))
    calls = [isinstance(node.target, OpOverload) for node in graph_module.graph.nodes if node.op in _CALLS]
    return rung, 2 * sum(calls) > len(calls)


def _place(node: Node) -> tuple[str, ...]:
    return node.op, str(node.target), module_path(node), str(node.args), str(node.kwargs)


def _is_placed(node: Node) -> bool:
    return bool(module_path(node) or node.meta.get("stack_trace"))


def _by_ancestry(original: GraphModule, transformed: GraphModule) -> Lineage:
    before = {node: ancestry(node) for node in original.graph.nodes if node.op in _CALLS}
    after = {node: ancestry(node) for node in transformed.graph.nodes if node.op in _CALLS}
    known = {key for keys in before.values() for key in keys}
    shared = known & {key for keys in after.values() for key in keys}
    return _grouped(*(_first_shared(nodes, shared) for nodes in (before, after)))


def _first_shared(nodes: dict[Node, list[Any]], shared: set[Any]) -> dict[Hashable, list[Node]]:
    groups: dict[Hashable, list[Node]] = defaultdict(list)
    for node, keys in nodes.items():
        if (key := next((key for key in keys if key in shared), None)) is not None:
            groups[key].append(node)
    return groups


def _grouped(before: dict[Hashable, list[Node]], after: dict[Hashable, list[Node]]) -> Lineage:
    """Pair the last nodes of corresponding groups, which compute the result of the step."""
    found = Lineage()
    for key, nodes in after.items():
        if others := before.get(key):
            found.origins |= dict.fromkeys(nodes, others)
            found.pairs[nodes[-1]] = others[-1]
    return found


def _by_place(original: GraphModule, transformed: GraphModule, found: Lineage) -> None:
    """Find the remaining calls by their module call and the line that made them."""
    taken = {other for others in found.origins.values() for other in others}
    rest = [n for n in transformed.graph.nodes if n.op in _CALLS and n not in found.origins and _is_placed(n)]
    others = [n for n in original.graph.nodes if n.op in _CALLS and n not in taken and _is_placed(n)]
    whole = {module_path(node) for node in (*rest, *others) if node.op == "call_module"}
    before, after = ({node: _steps(node, whole) for node in nodes} for nodes in (others, rest))
    shared = {step for steps in before.values() for step in steps}
    shared &= {step for steps in after.values() for step in steps}
    ours, theirs = (_first_shared(nodes, shared) for nodes in (before, after))
    modules = [modules_by_path(original), modules_by_path(transformed)]
    for step, nodes in theirs.items():
        if step in ours:
            _align(ours[step], nodes, modules, found)


def _steps(node: Node, whole: set[str]) -> list[Hashable]:
    """Return the steps to which a node may belong, closest first: the call of a module, or lines in one."""
    path = module_path(node)
    lines = [(path, frame["file"], frame["line"]) for frame in frames_of(node)]
    return [path, *lines] if path in whole else [*lines]


def _kinds(nodes: list[Node], modules: Mapping[str, nn.Module]) -> list[tuple[str, int]]:
    """Return the kind of each node in words, and its number among nodes of the kind."""
    words = ((kind_text(node, modules), node) for node in nodes)
    return numbered(f"{kind} {node.args[1]}" if kind == "getitem" else kind for kind, node in words)


def _align(
    before: list[Node], after: list[Node], modules: Sequence[Mapping[str, nn.Module]], found: Lineage
) -> None:
    """Pair calls of one step by kind, in their order; the calls between two pairs correspond as a group."""
    i = j = 0
    pairs = in_order(*map(_kinds, (before, after), modules))
    for next_i, next_j in [*pairs, (len(before), len(after))]:
        if i < next_i and j < next_j:
            found.origins |= dict.fromkeys(after[j:next_j], before[i:next_i])
            last, other = after[next_j - 1], before[next_i - 1]
            if last.all_input_nodes and other.all_input_nodes:  # a new tensor ends no step
                found.pairs[last] = other
        if next_i < len(before):
            found.origins[after[next_j]], found.pairs[after[next_j]] = [before[next_i]], before[next_i]
        i, j = next_i + 1, next_j + 1


def _by_path(original: GraphModule, transformed: GraphModule, found: Lineage) -> None:
    """Match the nodes that read the same parameter or buffer."""
    paths = {str(node.target): node for node in reversed(original.graph.find_nodes(op="get_attr"))}
    for node in transformed.graph.find_nodes(op="get_attr"):
        if (other := paths.get(str(node.target))) is not None:
            found.origins[node], found.pairs[node] = [other], other
