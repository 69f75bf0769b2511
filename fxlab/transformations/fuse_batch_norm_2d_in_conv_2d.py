"""Fuse batch norms that follow a convolution into it."""

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
)
from fxlab.transformations.editor import Editor
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.module_safety import why_mixed, why_not_replaceable
from fxlab.transformations.new_modules import new_conv2d
from fxlab.transformations.node_arguments import only_input
from fxlab.transformations.replacement import carry_tensor
from fxlab.transformations.rewrite_pass import RewritePass


@dataclass(frozen=True)
class ConvAndNorm:
    """A convolution and the batch norm that reads it."""

    conv_node: Node
    norm_node: Node
    conv: nn.Conv2d
    norm: nn.BatchNorm2d

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The batch norm, which would go."""
        return (self.norm_node,)


@dataclass(frozen=True)
class FuseBatchNorm2dInConv2d(RewritePass[ConvAndNorm]):
    """Fuse batch norms that follow a 2d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is the one that is marked.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8)).eval()
    >>> fuse = FuseBatchNorm2dInConv2d()
    >>> fused = fuse(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'output']
    >>> fuse(fused, reverse=True).get_submodule("1") is model[1]
    True
    """

    def match(self, facts: GraphFacts) -> Iterator[ConvAndNorm]:
        """Yield the batch norms that read a convolution."""
        for node in facts.graph_module.graph.nodes:
            norm = facts.module(node)
            if not isinstance(norm, nn.BatchNorm2d) or (conv_node := only_input(node)) is None:
                continue
            conv = facts.module(conv_node)
            if isinstance(conv, nn.Conv2d):
                yield ConvAndNorm(conv_node, node, conv, norm)

    def refuse(self, candidate: ConvAndNorm, facts: GraphFacts) -> str:
        """Refuse what cannot be replaced, what others read, and a batch norm that is not a fixed scaling."""
        conv, norm = candidate.conv, candidate.norm
        if len(candidate.conv_node.users) > 1:
            return f"{candidate.conv_node.name} is read by others too"
        for node, module, expected in (
            (candidate.conv_node, "convolution", nn.Conv2d),
            (candidate.norm_node, "batch norm", nn.BatchNorm2d),
        ):
            if reason := why_not_replaceable(facts, str(node.target), expected):
                return f"the {module} cannot be replaced: {reason}"
        if reason := why_not_constant(norm) or why_mixed(conv, norm):
            return reason
        if reason := why_not_per_channel(norm, conv.weight.shape[0]):
            return reason
        if not facts.writes.same_state(candidate.conv_node, candidate.norm_node):
            return "the gradient or autocast mode changes in between"
        return why_not_finite(*_folded(conv, norm))

    def describe(self, candidate: ConvAndNorm) -> str:
        """Name the convolution."""
        return f"fused into {candidate.conv_node.name}"

    def rewrite(self, candidate: ConvAndNorm, edit: Editor) -> Node:
        """Put a convolution with the folded weights in place of both."""
        conv_node, norm_node = candidate.conv_node, candidate.norm_node
        fused = new_conv2d(*_folded(candidate.conv, candidate.norm), like=candidate.conv)
        edit.replace_modules([conv_node, norm_node], fused, str(conv_node.target))
        edit.erase(norm_node, pass_on_to=conv_node)
        return conv_node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide the scaling out of weights that were trained since; move what was moved."""
        conv, norm = originals
        if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
            raise TypeError("A convolution and a batch norm were expected.")
        unchanged = is_cast_of(_folded(conv, norm), replacement)
        move_like(originals, replacement)
        if unchanged:
            return
        affine = ScaleAndShift.of(norm)
        weight, bias = (
            precise(replacement.get_parameter("weight")),
            precise(replacement.get_parameter("bias")),
        )
        carried = bool((affine.scale != 0).all()) and carry_bias(
            conv, norm, (bias - affine.shift) / affine.scale, bias - affine.shift + precise_bias(norm)
        )
        if carried:
            scale = affine.scale.reshape(-1, 1, 1, 1)
            carry_tensor(conv, "weight", (weight / scale).to(conv.weight.dtype))
        else:
            super().update_originals(replacement, originals)


def precise_bias(norm: nn.BatchNorm2d) -> torch.Tensor:
    """Return the bias of a batch norm, which is zero where it has none."""
    return torch.zeros(()) if norm.bias is None else precise(norm.bias)


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    return ScaleAndShift.of(norm).after(conv.weight, conv.bias)
