"""Compute RMS norms that are written as arithmetic by one function."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional

from fxlab.transformations.passes.fuse_norms.norm import FuseNorm, WrittenNorm, layer_norm, rms_norm


@dataclass(frozen=True)
class FuseRMSNorm(FuseNorm):
    """Compute RMS norms by ``torch.nn.functional.rms_norm``.

    Fused is ``x / sqrt(mean(x**2) + eps)`` over the last dimension, with casts in between and a product with
    a weight as they come (Zhang and Sennrich 2019). The result is equal up to rounding: half precision is
    not rounded in between. On CPUs torch runs the same arithmetic without Python in between, so small
    models gain a few percent, and large tensors nothing; for GPUs torch has a kernel. Shapes and dtypes must
    be known: trace with ``fxlab.symbolic_trace``, or run ``ShapeProp``. Where the dtypes of the graph could
    be others under autocast, it refuses to run there. The last product is the one that is marked.

    Examples
    --------
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> class Norm(torch.nn.Module):
    ...     def forward(self, x):
    ...         x = x.double()
    ...         return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    >>> traced = torch.fx.symbolic_trace(Norm())
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 8))
    >>> fuse = FuseRMSNorm()
    >>> [node.name for node in fuse(traced).graph.nodes]
    ['x', 'double', 'mul', 'output']
    >>> fuse.get_transformed_nodes(traced)[0].args
    (double, (8,), None, 1e-06)
    """

    looks_for: ClassVar = (rms_norm,)
    unlike: ClassVar = (layer_norm,)
    has_bias: ClassVar = False
    function: ClassVar = staticmethod(functional.rms_norm)
    overload: ClassVar = torch.ops.aten.rms_norm.default

    def arguments(self, candidate: WrittenNorm) -> tuple[Any, ...]:
        """Return the value, the size, the weight and the epsilon."""
        return candidate.value, (candidate.size,), candidate.weight, candidate.norm.eps
