"""Merging of equal small updates of an optimizer into calls for many tensors at once."""

import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxlab.node_info import known_result, upstream
from fxlab.reasons import Refusal
from fxlab.torch_private import OpOverload
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.units import counted


@dataclass(frozen=True)
class Updates:
    """The part of a training step downstream of the gradients, and its equal calls."""

    nodes: tuple[Node, ...]
    """The merged calls, which an explanation names."""
    behind: tuple[Node, ...]
    """All nodes downstream of the gradients, each after its inputs."""
    groups: tuple[tuple[Node, ...], ...]
    """Calls that become one."""


@dataclass(frozen=True)
class MergeUpdates(RewritePass[Updates]):
    """Merge equal updates of parameters into calls for lists of tensors, as optimizers with ``foreach`` do.

    An optimizer computes the same few operators for each parameter. In the graph of :func:`fxlab.trace_step`,
    equal calls with equal numbers, on tensors of one dtype and device, become one ``torch._foreach_...``.
    Nodes downstream of the gradients move to the end of the graph. On an accelerator a step of many small
    parameters launches fewer kernels; a CPU computes the same bits, one tensor after the other.

    Examples
    --------
    >>> from torch import nn
    >>> import fxlab
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> loss = lambda output: output.square().mean()
    >>> step = fxlab.trace_step(model, torch.ones(3, 4), loss, optimizer=optimizer)
    >>> session = fxlab.Session(step, passes=[MergeUpdates()])
    >>> _ = session.apply("merge-updates")
    >>> [str(n.target) for n in session.graph_module.graph.nodes if "foreach" in str(n.target)]
    ['aten._foreach_add.List']
    >>> session.verdict().same_bits
    True
    """

    def match(self, facts: GraphFacts) -> Iterator[Updates]:
        """Yield the nodes downstream of the gradients of a step, if some can be merged."""
        graph = facts.graph_module.graph
        behind = _behind_gradients(graph)
        depth: dict[Node, int] = {}
        for node in behind:
            depth[node] = 1 + max((depth.get(each, 0) for each in node.all_input_nodes), default=0)
        keys: dict[Node, Any] = {}
        alike: dict[Any, list[Node]] = defaultdict(list)
        for node in behind:
            # Calls of one depth do not depend on each other.
            if _for_lists(node) is not None:
                keys[node] = (depth[node], *_key(node, keys))
                alike[keys[node]].append(node)
            elif not _is_tensor(node):  # a number: equal computations give the same
                keys[node] = _key(node, keys)
        groups = tuple(tuple(nodes) for nodes in alike.values() if len(nodes) > 1)
        if groups:
            merged = {node for group in groups for node in group}
            order = sorted(behind, key=depth.__getitem__)
            yield Updates(tuple(node for node in behind if node in merged), tuple(order), groups)

    def refuse(self, candidate: Updates, facts: GraphFacts) -> Refusal | None:
        """Refuse updates that write in place, draw random numbers or have other effects."""
        return next((why for node in candidate.behind if (why := why_impure(node, facts))), None)

    def describe(self, candidate: Updates) -> str:
        """Tell how many calls become how many."""
        calls = counted(len(candidate.nodes), "call")
        return f"{calls} of the update become {len(candidate.groups)} for lists of tensors"

    def rewrite(self, candidate: Updates, edit: Editor) -> tuple[Node, ...]:
        """Rewrite the updates at the end of the graph."""
        end = edit.graph_module.graph.output_node()
        edit.move(candidate.behind, end)
        used = {node for node in candidate.behind if node.users}
        group_of = {node: group for group in candidate.groups for node in group}
        made: dict[tuple[Node, ...], Node] = {}
        items: dict[Node, Node] = {}

        def read_by(reader: Node, value: Any) -> Any:
            """Return arguments of a node, with items of lists in place of merged calls."""

            def item(node: Node) -> Node:
                if node in group_of and node not in items:
                    group = group_of[node]
                    args = made[group], group.index(node)
                    items[node] = edit.insert_before(
                        reader, "call_function", operator.getitem, args, meta=dict(node.meta)
                    )
                return items.get(node, node)

            return map_arg(value, item)

        def listed(nodes: Sequence[Node], reader: Node) -> Any:
            group = group_of.get(nodes[0])
            return made[group] if group is not None and [*group] == [*nodes] else read_by(reader, [*nodes])

        for node in candidate.behind:
            group = group_of.get(node)
            if group is None:
                args, kwargs = read_by(node, node.args), read_by(node, node.kwargs)
                if (args, kwargs) != (node.args, node.kwargs):
                    edit.change(node, args=args, kwargs=kwargs)
            elif group not in made:
                lists = tuple(
                    listed([each.args[place] for each in group], node) if _is_tensor(arg) else arg  # type: ignore[misc]
                    for place, arg in enumerate(node.args)
                )
                meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
                meta["val"] = [known_result(each) for each in group]
                made[group] = edit.insert_before(
                    node, "call_function", _for_lists(node), lists, node.kwargs, meta=meta
                )
        edit.change(end, args=read_by(end, end.args))
        for node in reversed(candidate.behind):
            if node in used and not node.users:  # merged, or a number that is computed for another as well
                edit.erase(node)
        return tuple(made.values())


def _behind_gradients(graph: Graph) -> list[Node]:
    """Return the nodes of a step on which neither loss nor gradients depend; empty if it is no step."""
    results = graph.output_node().args[0]
    if not isinstance(results, Mapping) or not any(str(name).startswith("new ") for name in results):
        return []
    named = (value for name, value in results.items() if name == "loss" or str(name).startswith("grad of "))
    needed = upstream(*(value for value in named if isinstance(value, Node)))
    calls = (node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output"))
    return [node for node in calls if node not in needed]


def _is_tensor(value: object) -> bool:
    return isinstance(value, Node) and isinstance(known_result(value), torch.Tensor)


def _key(node: Node, keys: Mapping[Node, Any]) -> tuple[Any, ...]:
    """Return a key that is equal for the same calls on tensors of one kind and on the same numbers."""

    def known(value: Any) -> Any:
        if not isinstance(value, Node):
            return type(value), repr(value)
        if _is_tensor(value):
            result = known_result(value)
            return keys.get(value) or (result.dtype, result.device)
        return keys.get(value, value)

    args = tuple(map(known, node.args))
    return (node.target, args, tuple((name, known(value)) for name, value in sorted(node.kwargs.items())))


def _for_lists(node: Node) -> Any:
    """Return the operator that computes many calls of another at once; ``None`` if there is none."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten" or not _is_tensor(node):
        return None
    packet = getattr(torch.ops.aten, f"_foreach_{target._schema.name.partition('::')[2]}", None)
    if packet is None or not all(map(_is_plain, (*node.args, *node.kwargs.values()))):
        return None
    kinds = ["List[Tensor]" if _is_tensor(arg) else "number" for arg in node.args]
    for name in packet.overloads():
        overload = getattr(packet, name)
        known = [(arg.name, str(arg.type)) for arg in overload._schema.arguments]
        given, rest = known[: len(kinds)], dict(known[len(kinds) :])
        if [kind for _, kind in given] == kinds and node.kwargs.keys() <= rest.keys():
            is_whole = all(arg.has_default_value() for arg in overload._schema.arguments[len(kinds) :])
            if is_whole or rest.keys() == node.kwargs.keys():
                return overload
    return None


def _is_plain(value: object) -> bool:
    """Tell whether an argument is a tensor or a number."""
    if isinstance(value, Node):
        result = known_result(value)
        return isinstance(result, torch.Tensor | int | float | torch.SymInt | torch.SymFloat)
    return isinstance(value, int | float) and not isinstance(value, bool)
