"""Fuse batch norms that follow a transposed convolution into it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.transformations.passes.fuse_batch_norm.in_conv import FuseBatchNormInConv


@dataclass(frozen=True)
class FuseBatchNormInConvTranspose(FuseBatchNormInConv):
    """Fuse batch norms that follow a transposed convolution, in 1d, 2d or 3d, into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. For 1d ones the shape must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``. The convolution node is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(3, 8, 2), torch.nn.BatchNorm2d(8)).eval()
    >>> fused = FuseBatchNormInConvTranspose()(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {
        nn.ConvTranspose1d: nn.BatchNorm1d,
        nn.ConvTranspose2d: nn.BatchNorm2d,
        nn.ConvTranspose3d: nn.BatchNorm3d,
    }
