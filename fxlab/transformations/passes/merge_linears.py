"""Merge linear layers that read the same input."""

import operator
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import cast

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import Argument

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed, why_not_replaceable
from fxlab.transformations.analysis.node_shape import with_last_size
from fxlab.transformations.analysis.strides import needs_contiguous
from fxlab.transformations.journal.module_fingerprint import carry_tensor
from fxlab.transformations.journal.module_tree import split_path
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_linear
from fxlab.transformations.rewriting.node_arguments import only_input
from fxlab.transformations.rewriting.rewrite_pass import RewritePass


@dataclass(frozen=True)
class LinearGroup:
    """Calls of linear layers that can be one call, in graph order; or one call that is left over."""

    input: Node
    nodes: tuple[Node, ...]
    linears: tuple[nn.Linear, ...]
    contiguous: tuple[bool, ...]
    """Whether each result must lie in memory as a linear layer leaves it."""


@dataclass(frozen=True)
class MergeLinears(RewritePass[LinearGroup]):
    """Merge linear layers that read the same input into one bigger linear layer.

    The weights are stacked, and each layer becomes a slice of the merged result. Layers are merged when
    they agree in dtype, device, mode, in having a bias and in what of them is trained; the others stay as
    they are. The merged linear node is the one that is marked.

    Examples
    --------
    >>> class Attention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.query, self.key = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    ...
    ...     def forward(self, x):
    ...         return self.query(x) @ self.key(x).transpose(-1, -2)
    >>> merge = MergeLinears()
    >>> merged = merge(torch.fx.symbolic_trace(Attention()))
    >>> merge.get_transformed_nodes(merged)
    [query_key_merged]
    >>> [name for name, _ in merge(merged, reverse=True).named_children()]
    ['query', 'key']
    """

    def match(self, facts: GraphFacts) -> Iterator[LinearGroup]:
        """Yield the linear layers that share an input, split into those that agree."""
        readers: dict[Node, list[Node]] = defaultdict(list)
        for node in facts.graph_module.graph.nodes:
            if isinstance(facts.module(node), nn.Linear) and (value := only_input(node)) is not None:
                readers[value].append(node)
        for value, nodes in readers.items():
            if len(nodes) < 2:
                continue
            groups: dict[object, list[Node]] = defaultdict(list)
            for node in nodes:
                groups[_agreement(facts, value, node)].append(node)
            for group in groups.values():
                yield _linear_group(facts, value, group)

    def refuse(self, candidate: LinearGroup, facts: GraphFacts) -> Refusal | None:
        """Refuse what cannot be replaced, and a layer that agrees with no other."""
        for node in candidate.nodes:
            if reason := _why_not_mergeable(facts, node):
                return reason
        if len(candidate.nodes) < 2:
            return Reason.NO_COMPATIBLE_LINEAR()
        return None

    def describe(self, candidate: LinearGroup) -> str:
        """Name the layers that become one."""
        return f"one linear of {', '.join(node.name for node in candidate.nodes)}"

    def rewrite(self, candidate: LinearGroup, edit: Editor) -> Node:
        """Put one linear before the first, and slices of its result in place of each."""
        first = candidate.nodes[0]
        paths = [str(node.target) for node in candidate.nodes]
        at = edit.free_path(split_path(paths[0])[0], _merged_name(paths))
        edit.replace_modules(candidate.nodes, _merged(candidate.linears), at)
        merged = edit.insert_before(
            first,
            "call_module",
            at,
            (candidate.input,),
            name=split_path(at)[1],
            meta=_merged_meta(candidate, at),
        )
        bounds = accumulate((linear.out_features for linear in candidate.linears), initial=0)
        for node, (start, stop), contiguous in zip(
            candidate.nodes, pairwise(bounds), candidate.contiguous, strict=True
        ):
            index = cast("tuple[Argument, ...]", (merged, (Ellipsis, slice(start, stop))))
            if contiguous:
                part = edit.insert_before(
                    node, "call_function", operator.getitem, index, name=f"{node.name}_slice"
                )
                edit.change(node, op="call_method", target="contiguous", args=(part,), kwargs={})
            else:
                edit.change(node, op="call_function", target=operator.getitem, args=index, kwargs={})
        return merged

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Give each layer its rows of the merged weight and bias."""
        sizes = [original.out_features for original in originals if isinstance(original, nn.Linear)]
        for name, parameter in replacement.named_parameters():
            for original, part in zip(originals, torch.split(parameter, sizes), strict=True):
                carry_tensor(original, name, part)


def _agreement(facts: GraphFacts, value: Node, node: Node) -> object:
    """Return what linears must have in common to be merged; a linear that cannot be merged is on its own."""
    linear = facts.module(node)
    if not isinstance(linear, nn.Linear) or _why_not_mergeable(facts, node):
        return node
    bias = linear.bias
    return (
        linear.weight.dtype,
        linear.weight.device,
        linear.in_features,
        linear.weight.requires_grad,
        None if bias is None else bias.requires_grad,
        linear.training,
        facts.writes.epoch(value, node),
    )


def _why_not_mergeable(facts: GraphFacts, node: Node) -> Refusal | None:
    linear = facts.module(node)
    reason = why_not_replaceable(facts, str(node.target), nn.Linear)
    if reason or not isinstance(linear, nn.Linear):
        return reason
    if linear.weight.shape != (linear.out_features, linear.in_features):
        return Reason.WEIGHT_SHAPE()
    return why_mixed(linear)


def _linear_group(facts: GraphFacts, value: Node, nodes: list[Node]) -> LinearGroup:
    linears = tuple(module for module in map(facts.module, nodes) if isinstance(module, nn.Linear))
    contiguous = tuple(
        needs_contiguous(node, linear.out_features, facts)
        for node, linear in zip(nodes, linears, strict=True)
        if len(nodes) > 1
    )
    return LinearGroup(value, tuple(nodes), linears, contiguous)


def _merged(linears: tuple[nn.Linear, ...]) -> nn.Linear:
    with torch.no_grad():
        weight = torch.cat(tuple(linear.weight for linear in linears))
        biases = tuple(linear.bias for linear in linears if linear.bias is not None)
        bias = torch.cat(biases) if biases else None
    return new_linear(weight, bias, like=linears[0])


def _merged_name(paths: list[str]) -> str:
    names = [split_path(path)[1] for path in paths]
    if len(names) > 4:
        names = [names[0], "and", str(len(names) - 1), "more"]
    name = "_".join([*names, "merged"])
    return name if name.isidentifier() else f"linear_{name}"


def _merged_meta(candidate: LinearGroup, at: str) -> dict[str, object]:
    """Return where the merged linear is in the model and what is known of its result."""
    first = candidate.nodes[0].meta
    meta = {key: first[key] for key in ("stack_trace",) if key in first}
    if stack := first.get("nn_module_stack"):
        outer = list(stack.items())[:-1]
        meta["nn_module_stack"] = type(stack)([*outer, (at, (at, nn.Linear))])
    if isinstance(value := first.get("val"), torch.Tensor):
        meta["val"] = with_last_size(value, sum(linear.out_features for linear in candidate.linears))
    return meta
