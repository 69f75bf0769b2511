"""Fuse batch norms that follow a 2d convolution into it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.transformations.passes.fuse_batch_norm.in_conv import FuseBatchNormInConv


@dataclass(frozen=True)
class FuseBatchNorm2dInConv2d(FuseBatchNormInConv):
    """Fuse batch norms that follow a 2d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8)).eval()
    >>> fuse = FuseBatchNorm2dInConv2d()
    >>> fused = fuse(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    >>> fuse(fused, reverse=True).get_submodule("1") is model[1]
    True
    """

    pairs: ClassVar = {nn.Conv2d: nn.BatchNorm2d}
