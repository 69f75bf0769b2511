"""Fuse batch norms into the adjacent convolution or linear layer."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators.node_info import known_shape
from fxlab.transformations.passes.fuse_batch_norm.folding import FuseBatchNorm, LayerAndNorm


@dataclass(frozen=True)
class FuseBatchNorm1dInConv1d(FuseBatchNorm):
    """Fuse batch norms that follow a 1d convolution into the convolution.

    It works like :class:`fxlab.FuseBatchNorm2dInConv2d`. A result of shape ``(C, L)`` is a single sample
    to the convolution and a batch to the batch norm, so the shape must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``.

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


@dataclass(frozen=True)
class FuseBatchNorm2dInConv2d(FuseBatchNorm):
    """Fuse batch norms that follow a 2d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is marked.

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


@dataclass(frozen=True)
class FuseBatchNorm3dInConv3d(FuseBatchNorm):
    """Fuse batch norms that follow a 3d convolution into the convolution."""

    pairs: ClassVar = {nn.Conv3d: nn.BatchNorm3d}


@dataclass(frozen=True)
class FuseBatchNormInConvTranspose(FuseBatchNorm):
    """Fuse batch norms that follow a transposed convolution, in 1d, 2d or 3d, into the convolution.

    See :class:`fxlab.FuseBatchNorm2dInConv2d`. For 1d ones the shape must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``.
    """

    pairs: ClassVar = {
        nn.ConvTranspose1d: nn.BatchNorm1d,
        nn.ConvTranspose2d: nn.BatchNorm2d,
        nn.ConvTranspose3d: nn.BatchNorm3d,
    }


@dataclass(frozen=True)
class FuseBatchNorm1dInLinear(FuseBatchNorm):
    """Fuse 1d batch norms that follow or precede a linear layer into the linear layer.

    On an input of shape ``(N, C)`` a batch norm in evaluation mode scales and shifts each feature, which a
    linear layer before or after it can do as well. On ``(N, C, L)`` it normalises another dimension than
    the linear layer works on, so the shape must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. The linear node is marked.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8)).eval()
    >>> traced = torch.fx.symbolic_trace(model)
    >>> fuse = FuseBatchNorm1dInLinear()
    >>> fuse.explain(traced)["reason"].iloc[0]
    'the shape of its input is unknown; run ShapeProp first'
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 3))
    >>> [node.op for node in fuse(traced).graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {nn.Linear: nn.BatchNorm1d}
    norm_may_be_first: ClassVar = True

    def why_other(self, candidate: LayerAndNorm) -> Refusal | None:
        """Refuse inputs that are not known to be of shape ``(N, C)``."""
        shapes = [known_shape(node) for node in (candidate.norm.input, candidate.norm.node)]
        shape = next((shape for shape in shapes if shape is not None), None)
        if shape is None:
            return Reason.UNKNOWN_SHAPE(value="its input")
        if len(shape) != 2:
            return Reason.DIMENSIONS(value="its input", count=len(shape), supported="(N, C)")
        return None
