"""Fuse batch norms that precede a convolution into it."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import AnyConv
from fxlab.transformations.passes.fuse_batch_norm.batch_norm import ScaleAndShift
from fxlab.transformations.passes.fuse_batch_norm.folding import FuseBatchNorm, LayerAndNorm, why_no_batch


@dataclass(frozen=True)
class FuseBatchNormBeforeConv(FuseBatchNorm):
    """Fuse batch norms that precede a convolution, in 1d, 2d or 3d, into the convolution.

    In evaluation mode a batch norm scales and shifts each channel. The weight of a convolution behind it can
    scale as well, and its bias add what becomes of the shift, as long as each output sees all of the shift:
    where the convolution pads with zeros, which are not shifted, the batch norm stays. The convolution node
    is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 8, 2)).eval()
    >>> fused = FuseBatchNormBeforeConv()(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {
        nn.Conv1d: nn.BatchNorm1d,
        nn.Conv2d: nn.BatchNorm2d,
        nn.Conv3d: nn.BatchNorm3d,
    }
    norm_may_be_first: ClassVar = True
    norm_may_be_last: ClassVar = False

    def why_other(self, candidate: LayerAndNorm) -> Refusal | None:
        """Refuse padding with zeros, and 1d batch norms of what may be a single sample."""
        return _why_shift_is_padded(candidate) or why_no_batch(candidate)


def _why_shift_is_padded(candidate: LayerAndNorm) -> Refusal | None:
    """Return why not every output sees all of the shift; other padding than with zeros is shifted itself."""
    conv = candidate.layer.module
    if not isinstance(conv, AnyConv) or conv.padding_mode != "zeros" or not _pads(conv):
        return None
    shift = ScaleAndShift.of(candidate.norm.module).shift
    if not shift.is_meta and not bool(shift.any()):
        return None
    return Reason.ZERO_PADDING()


def _pads(conv: AnyConv) -> bool:
    if isinstance(conv.padding, str):
        return conv.padding == "same" and any(size > 1 for size in conv.weight.shape[2:])
    return any(conv.padding)
