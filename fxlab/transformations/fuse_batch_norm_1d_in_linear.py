"""Fuse batch norms that follow or precede a linear layer into it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node

from fxlab.transformations.batch_norm import (
    ScaleAndShift,
    carry_bias,
    is_cast_of,
    move_like,
    precise,
    why_not_constant,
    why_not_finite,
    why_not_per_channel,
    why_only_norm_is_trained,
)
from fxlab.transformations.editor import Editor
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.module_safety import why_mixed, why_not_replaceable
from fxlab.transformations.new_modules import new_linear
from fxlab.transformations.node_arguments import only_input
from fxlab.transformations.node_shape import known_shape
from fxlab.transformations.replacement import carry_tensor
from fxlab.transformations.rewrite_pass import RewritePass


@dataclass(frozen=True)
class LinearAndNorm:
    """A linear layer and the batch norm that reads it, or that it reads."""

    linear_node: Node
    norm_node: Node
    linear: nn.Linear
    norm: nn.BatchNorm1d
    norm_input: Node
    norm_first: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The batch norm, which would go."""
        return (self.norm_node,)


@dataclass(frozen=True)
class FuseBatchNorm1dInLinear(RewritePass[LinearAndNorm]):
    """Fuse 1d batch norms that follow or precede a linear layer into the linear layer.

    On an input of shape ``(N, C)`` a batch norm in evaluation mode scales and shifts each feature, which a
    linear layer before or after it can do as well. On ``(N, C, L)`` it normalises another dimension than
    the linear layer works on, so the shape must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. The linear node is the one that is marked.

    Examples
    --------
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8)).eval()
    >>> traced = torch.fx.symbolic_trace(model)
    >>> fuse = FuseBatchNorm1dInLinear()
    >>> fuse.explain(traced)["reason"][0]
    'the shape of its input is not known; run ShapeProp first'
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 3))
    >>> [node.op for node in fuse(traced).graph.nodes]
    ['placeholder', 'call_module', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[LinearAndNorm]:
        """Yield the linear layers that a batch norm reads, and those that read a batch norm."""
        for node in facts.graph_module.graph.nodes:
            module, value = facts.module(node), only_input(node)
            if not isinstance(module, nn.Linear | nn.BatchNorm1d) or value is None:
                continue
            before = facts.module(value)
            if isinstance(module, nn.BatchNorm1d) and isinstance(before, nn.Linear):
                yield LinearAndNorm(value, node, before, module, value, norm_first=False)
            elif isinstance(module, nn.Linear) and isinstance(before, nn.BatchNorm1d):
                norm_input = only_input(value)
                if norm_input is not None:
                    yield LinearAndNorm(node, value, module, before, norm_input, norm_first=True)

    def refuse(self, candidate: LinearAndNorm, facts: GraphFacts) -> str:
        """Refuse what cannot be replaced, what others read, other shapes, and what is not a fixed scaling."""
        linear, norm = candidate.linear, candidate.norm
        first = candidate.norm_node if candidate.norm_first else candidate.linear_node
        if len(first.users) > 1:
            return f"{first.name} is read by others too"
        for node, module, expected in (
            (candidate.linear_node, "linear", nn.Linear),
            (candidate.norm_node, "batch norm", nn.BatchNorm1d),
        ):
            if reason := why_not_replaceable(facts, str(node.target), expected):
                return f"the {module} cannot be replaced: {reason}"
        if reason := why_not_constant(norm) or why_mixed(linear, norm) or _why_not_two_dimensional(candidate):
            return reason
        if reason := why_not_per_channel(norm, linear.weight.shape[1 if candidate.norm_first else 0]):
            return reason
        if reason := why_only_norm_is_trained(linear, norm):
            return reason
        if not facts.writes.same_state(candidate.linear_node, candidate.norm_node):
            return "the gradient or autocast mode changes in between"
        if candidate.norm_first and _is_written_between(candidate, facts):
            return f"{candidate.norm_input.name} is written in place before {candidate.linear_node.name}"
        return why_not_finite(*_folded(linear, norm, candidate.norm_first))

    def describe(self, candidate: LinearAndNorm) -> str:
        """Name the linear layer."""
        return f"fused into {candidate.linear_node.name}"

    def rewrite(self, candidate: LinearAndNorm, edit: Editor) -> Node:
        """Put a linear layer with the folded weights in place of both."""
        linear_node, norm_node = candidate.linear_node, candidate.norm_node
        nodes = [norm_node, linear_node] if candidate.norm_first else [linear_node, norm_node]
        folded = _folded(candidate.linear, candidate.norm, candidate.norm_first)
        edit.replace_modules(nodes, new_linear(*folded, like=candidate.linear), str(linear_node.target))
        if candidate.norm_first:
            edit.change(linear_node, args=(candidate.norm_input,), kwargs={})
            edit.erase(norm_node)
        else:
            edit.erase(norm_node, pass_on_to=linear_node)
        return linear_node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide the scaling out of weights that were trained since; move what was moved."""
        norm_first = isinstance(originals[0], nn.BatchNorm1d)
        linear, norm = reversed(originals) if norm_first else originals
        if not isinstance(linear, nn.Linear) or not isinstance(norm, nn.BatchNorm1d):
            raise TypeError("A linear layer and a batch norm were expected.")
        unchanged = is_cast_of(_folded(linear, norm, norm_first), replacement)
        move_like(originals, replacement)
        if unchanged:
            return
        affine = ScaleAndShift.of(norm)
        weight, bias = (
            precise(replacement.get_parameter("weight")),
            precise(replacement.get_parameter("bias")),
        )
        if not bool((affine.scale != 0).all()) or not _carry(linear, norm, norm_first, affine, weight, bias):
            super().update_originals(replacement, originals)


def _carry(
    linear: nn.Linear,
    norm: nn.BatchNorm1d,
    norm_first: bool,
    affine: ScaleAndShift,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> bool:
    """Bring new weights back to both modules. Tell whether there was a place for them."""
    if norm_first:
        weight = weight / affine.scale
        own_bias = linear._parameters["bias"]
        if own_bias is None:
            return False
        carry_tensor(linear, "bias", (bias - weight @ affine.shift).to(own_bias.dtype))
    else:
        weight = weight / affine.scale[:, None]
        shift = bias - affine.shift
        norm_bias = shift if norm.bias is None else shift + precise(norm.bias)
        if not carry_bias(linear, norm, shift / affine.scale, norm_bias):
            return False
    carry_tensor(linear, "weight", weight.to(linear.weight.dtype))
    return True


def _folded(linear: nn.Linear, norm: nn.BatchNorm1d, norm_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    affine = ScaleAndShift.of(norm)
    fold = affine.before if norm_first else affine.after
    return fold(linear.weight, linear.bias)


def _why_not_two_dimensional(candidate: LinearAndNorm) -> str:
    shapes = [known_shape(node) for node in (candidate.norm_input, candidate.norm_node)]
    shape = next((shape for shape in shapes if shape is not None), None)
    if shape is None:
        return "the shape of its input is not known; run ShapeProp first"
    if len(shape) != 2:
        return f"its input has {len(shape)} dimensions, and only (N, C) can be fused"
    return ""


def _is_written_between(candidate: LinearAndNorm, facts: GraphFacts) -> bool:
    value = candidate.norm_input
    return facts.writes.epoch(value, candidate.norm_node) != facts.writes.epoch(value, candidate.linear_node)
