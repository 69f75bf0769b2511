"""Fuse batch norms that follow a 1d convolution into it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.transformations.passes.fuse_batch_norm.in_conv import FuseBatchNormInConv


@dataclass(frozen=True)
class FuseBatchNorm1dInConv1d(FuseBatchNormInConv):
    """Fuse batch norms that follow a 1d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. A result of shape ``(C, L)`` is a single sample to the convolution
    and a batch to the batch norm, so the shape must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. The convolution node is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> model = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 1), torch.nn.BatchNorm1d(8)).eval()
    >>> traced = torch.fx.symbolic_trace(model)
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 3, 5))
    >>> [node.op for node in FuseBatchNorm1dInConv1d()(traced).graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {nn.Conv1d: nn.BatchNorm1d}
