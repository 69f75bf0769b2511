"""What the passes that fuse a batch norm into the convolution before it have in common."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fxlab.transformations.batch_norm import (
    ScaleAndShift,
    carry_bias,
    is_cast_of,
    move_like,
    precise,
    precise_bias,
    why_not_constant,
    why_not_finite,
    why_not_per_channel,
    why_only_norm_is_trained,
)
from fxlab.transformations.conv_channels import output_channels, per_output
from fxlab.transformations.editor import Editor
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.module_safety import why_mixed, why_not_replaceable
from fxlab.transformations.new_modules import new_conv
from fxlab.transformations.node_arguments import only_input
from fxlab.transformations.node_shape import known_shape
from fxlab.transformations.replacement import carry_tensor
from fxlab.transformations.rewrite_pass import RewritePass


@dataclass(frozen=True)
class ConvAndNorm:
    """A convolution and the batch norm that reads it, or that it reads."""

    conv_node: Node
    norm_node: Node
    conv: _ConvNd
    norm: _BatchNorm

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The batch norm, which would go."""
        return (self.norm_node,)


class FuseBatchNormAfterConv(RewritePass[ConvAndNorm]):
    """A pass that fuses batch norms into the convolutions before them.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is the one that is marked.
    """

    pairs: ClassVar[Mapping[type[_ConvNd], type[_BatchNorm]]]
    """The convolutions, and the batch norm that may follow each."""

    def match(self, facts: GraphFacts) -> Iterator[ConvAndNorm]:
        """Yield the batch norms that read a convolution."""
        for node in facts.graph_module.graph.nodes:
            norm = facts.module(node)
            if not isinstance(norm, _BatchNorm) or (conv_node := only_input(node)) is None:
                continue
            conv = facts.module(conv_node)
            if isinstance(conv, _ConvNd) and pair_of(conv, norm, self.pairs) is not None:
                yield ConvAndNorm(conv_node, node, conv, norm)

    def refuse(self, candidate: ConvAndNorm, facts: GraphFacts) -> str:
        """Refuse what cannot be replaced, what others read, and a batch norm that is not a fixed scaling."""
        conv, norm = candidate.conv, candidate.norm
        if len(candidate.conv_node.users) > 1:
            return f"{candidate.conv_node.name} is read by others too"
        if reason := why_not_both_replaceable(candidate, facts, pair_of(conv, norm, self.pairs)):
            return reason
        if reason := why_not_constant(norm) or why_mixed(conv, norm):
            return reason
        if reason := why_not_per_channel(norm, output_channels(conv)):
            return reason
        if reason := why_only_norm_is_trained(conv, norm) or why_no_batch(candidate.conv_node, norm):
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
        fused = new_conv(*_folded(candidate.conv, candidate.norm), like=candidate.conv)
        edit.replace_modules([conv_node, norm_node], fused, str(conv_node.target))
        edit.erase(norm_node, pass_on_to=conv_node)
        return conv_node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide the scaling out of weights that were trained since; move what was moved."""
        conv, norm = originals
        if not isinstance(conv, _ConvNd) or not isinstance(norm, _BatchNorm):
            raise TypeError("A convolution and a batch norm were expected.")
        unchanged = is_cast_of(_folded(conv, norm), replacement)
        move_like(originals, replacement)
        if unchanged:
            return
        affine = ScaleAndShift.of(norm)
        weight, bias = (precise(replacement.get_parameter(name)) for name in ("weight", "bias"))
        carried = bool((affine.scale != 0).all()) and carry_bias(
            conv, norm, (bias - affine.shift) / affine.scale, bias - affine.shift + precise_bias(norm)
        )
        if carried:
            own_weight = weight / per_output(conv, affine.scale)
            carry_tensor(conv, "weight", own_weight.to(conv.weight.dtype))
        else:
            super().update_originals(replacement, originals)


def pair_of(
    conv: _ConvNd, norm: _BatchNorm, pairs: Mapping[type[_ConvNd], type[_BatchNorm]]
) -> tuple[type[_ConvNd], type[_BatchNorm]] | None:
    """Return the classes, of those that can be fused, that a convolution and a batch norm have."""
    for conv_class, norm_class in pairs.items():
        if isinstance(conv, conv_class) and isinstance(norm, norm_class):
            return conv_class, norm_class
    return None


def why_not_both_replaceable(
    candidate: ConvAndNorm, facts: GraphFacts, pair: tuple[type[_ConvNd], type[_BatchNorm]] | None
) -> str:
    """Return why one of the modules cannot be replaced; empty if both can."""
    conv_class, norm_class = pair or (_ConvNd, _BatchNorm)
    for node, module, expected in (
        (candidate.conv_node, "convolution", conv_class),
        (candidate.norm_node, "batch norm", norm_class),
    ):
        if reason := why_not_replaceable(facts, str(node.target), expected):
            return f"the {module} cannot be replaced: {reason}"
    return ""


def why_no_batch(node: Node, norm: _BatchNorm) -> str:
    """Return why a value may be one that a convolution takes for a single sample; empty if it is a batch.

    Only a 1d batch norm accepts such a value: one of shape ``(C, L)`` is a batch of ``C`` vectors to it.
    """
    if not isinstance(norm, nn.BatchNorm1d):
        return ""
    shape = known_shape(node)
    if shape is None:
        return f"the shape of {node.name} is not known; run ShapeProp first"
    if len(shape) != 3:
        return f"{node.name} has {len(shape)} dimensions, and only (N, C, L) can be fused"
    return ""


def _folded(conv: _ConvNd, norm: _BatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    affine = ScaleAndShift.of(norm)
    return affine.after(conv.weight, conv.bias, per_output(conv, affine.scale))
