"""Fuse batch norms that precede a convolution into it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fxlab.transformations.batch_norm import (
    ScaleAndShift,
    is_cast_of,
    move_like,
    precise,
    why_not_constant,
    why_not_finite,
    why_not_per_channel,
    why_only_norm_is_trained,
)
from fxlab.transformations.conv_channels import input_channels, per_input
from fxlab.transformations.editor import Editor
from fxlab.transformations.fuse_batch_norm_after_conv import (
    ConvAndNorm,
    pair_of,
    why_no_batch,
    why_not_both_replaceable,
)
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.module_safety import why_mixed
from fxlab.transformations.new_modules import new_conv
from fxlab.transformations.node_arguments import only_input
from fxlab.transformations.replacement import carry_tensor
from fxlab.transformations.rewrite_pass import RewritePass

_PAIRS: dict[type[_ConvNd], type[_BatchNorm]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}


@dataclass(frozen=True)
class FuseBatchNormBeforeConv(RewritePass[ConvAndNorm]):
    """Fuse batch norms that precede a convolution, in 1d, 2d or 3d, into the convolution.

    In evaluation mode a batch norm scales and shifts each channel. The weight of a convolution behind it can
    scale as well, and its bias add what becomes of the shift, as long as each output sees all of the shift:
    where the convolution pads with zeros, which are not shifted, the batch norm stays. The convolution node
    is the one that is marked.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 8, 2)).eval()
    >>> fused = FuseBatchNormBeforeConv()(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[ConvAndNorm]:
        """Yield the batch norms that a convolution reads."""
        for node in facts.graph_module.graph.nodes:
            conv = facts.module(node)
            if not isinstance(conv, _ConvNd) or (norm_node := only_input(node)) is None:
                continue
            norm = facts.module(norm_node)
            if not isinstance(norm, _BatchNorm) or only_input(norm_node) is None:
                continue
            if pair_of(conv, norm, _PAIRS) is not None:
                yield ConvAndNorm(node, norm_node, conv, norm)

    def refuse(self, candidate: ConvAndNorm, facts: GraphFacts) -> str:
        """Refuse what cannot be replaced, what others read, a norm that is no fixed scaling, and padding."""
        conv, norm = candidate.conv, candidate.norm
        if len(candidate.norm_node.users) > 1:
            return f"{candidate.norm_node.name} is read by others too"
        if reason := why_not_both_replaceable(candidate, facts, pair_of(conv, norm, _PAIRS)):
            return reason
        if reason := why_not_constant(norm) or why_mixed(conv, norm):
            return reason
        if reason := why_not_per_channel(norm, input_channels(conv)) or _why_shift_is_padded(conv, norm):
            return reason
        if reason := why_only_norm_is_trained(conv, norm) or why_no_batch(candidate.norm_node, norm):
            return reason
        if not facts.writes.same_state(candidate.norm_node, candidate.conv_node):
            return "the gradient or autocast mode changes in between"
        value = only_input(candidate.norm_node)
        if value is not None and _is_written_between(value, candidate, facts):
            return f"{value.name} is written in place before {candidate.conv_node.name}"
        return why_not_finite(*_folded(conv, norm))

    def describe(self, candidate: ConvAndNorm) -> str:
        """Name the convolution."""
        return f"fused into {candidate.conv_node.name}"

    def rewrite(self, candidate: ConvAndNorm, edit: Editor) -> Node:
        """Put a convolution with the folded weights in place of both."""
        conv_node, norm_node = candidate.conv_node, candidate.norm_node
        fused = new_conv(*_folded(candidate.conv, candidate.norm), like=candidate.conv)
        edit.replace_modules([norm_node, conv_node], fused, str(conv_node.target))
        edit.change(conv_node, args=(only_input(norm_node),), kwargs={})
        edit.erase(norm_node)
        return conv_node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide the scaling out of weights that were trained since; move what was moved."""
        norm, conv = originals
        if not isinstance(conv, _ConvNd) or not isinstance(norm, _BatchNorm):
            raise TypeError("A batch norm and a convolution were expected.")
        unchanged = is_cast_of(_folded(conv, norm), replacement)
        move_like(originals, replacement)
        if unchanged:
            return
        affine = ScaleAndShift.of(norm)
        if conv.bias is None or not bool((affine.scale != 0).all()):
            super().update_originals(replacement, originals)
            return
        weight, bias = (precise(replacement.get_parameter(name)) for name in ("weight", "bias"))
        weight = weight / per_input(conv, affine.scale)
        carry_tensor(conv, "bias", (bias - _seen(conv, weight, affine.shift)).to(conv.bias.dtype))
        carry_tensor(conv, "weight", weight.to(conv.weight.dtype))


def _folded(conv: _ConvNd, norm: _BatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    affine = ScaleAndShift.of(norm)
    with torch.no_grad():
        weight = precise(conv.weight)
        bias = _seen(conv, weight, affine.shift)
        if conv.bias is not None:
            bias = bias + precise(conv.bias)
        folded = weight * per_input(conv, affine.scale)
    return folded.to(conv.weight.dtype), bias.to(conv.weight.dtype)


def _seen(conv: _ConvNd, weight: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return what each output channel sees of a shift of the input channels."""
    return (weight * per_input(conv, shift)).flatten(1).sum(1)


def _why_shift_is_padded(conv: _ConvNd, norm: _BatchNorm) -> str:
    """Return why not every output sees all of the shift; other padding than with zeros is shifted itself."""
    if conv.padding_mode != "zeros" or not _pads(conv):
        return ""
    shift = ScaleAndShift.of(norm).shift
    if not shift.is_meta and not bool(shift.any()):
        return ""
    return "the convolution pads with zeros, which the batch norm does not shift"


def _pads(conv: _ConvNd) -> bool:
    if isinstance(conv.padding, str):
        return conv.padding == "same" and any(size > 1 for size in conv.weight.shape[2:])
    return any(conv.padding)


def _is_written_between(value: Node, candidate: ConvAndNorm, facts: GraphFacts) -> bool:
    return facts.writes.epoch(value, candidate.norm_node) != facts.writes.epoch(value, candidate.conv_node)
