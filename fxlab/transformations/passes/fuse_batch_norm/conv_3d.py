"""Fuse batch norms that follow a 3d convolution into it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.transformations.passes.fuse_batch_norm.in_conv import FuseBatchNormInConv


@dataclass(frozen=True)
class FuseBatchNorm3dInConv3d(FuseBatchNormInConv):
    """Fuse batch norms that follow a 3d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv3d(3, 8, 1), torch.nn.BatchNorm3d(8)).eval()
    >>> fused = FuseBatchNorm3dInConv3d()(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {nn.Conv3d: nn.BatchNorm3d}
