"""Compute layer norms that are written as arithmetic by one function."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional

from fxlab.transformations.passes.fuse_norms.norm import FuseNorm, WrittenNorm, layer_norm, rms_norm


@dataclass(frozen=True)
class FuseLayerNorm(FuseNorm):
    """Compute layer norms by ``torch.nn.functional.layer_norm``.

    Fused is ``(x - mean(x)) / sqrt(var(x) + eps)`` over the last dimension, with casts in between, and the
    product with a weight and the sum with a bias as they come (Ba et al. 2016). Models write them out, and
    graphs that compilers have decomposed do. The result is equal up to rounding: half precision is not
    rounded in between. Shapes and dtypes must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. Where the dtypes of the graph could be others under autocast, it refuses to run there. The
    last node is the one that is marked.

    Examples
    --------
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> class Norm(torch.nn.Module):
    ...     def forward(self, x):
    ...         centred = x.double() - x.double().mean(-1, keepdim=True)
    ...         return centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    >>> traced = torch.fx.symbolic_trace(Norm())
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 8))
    >>> fuse = FuseLayerNorm()
    >>> [node.name for node in fuse(traced).graph.nodes]
    ['x', 'double', 'truediv', 'output']
    >>> fuse.get_transformed_nodes(traced)[0].args
    (double, (8,), None, None, 1e-06)
    """

    looks_for: ClassVar = (layer_norm,)
    unlike: ClassVar = (rms_norm,)
    has_bias: ClassVar = True
    function: ClassVar = staticmethod(functional.layer_norm)
    overload: ClassVar = torch.ops.aten.layer_norm.default

    def arguments(self, candidate: WrittenNorm) -> tuple[Any, ...]:
        """Return the value, the size, the weight, the bias and the epsilon."""
        return candidate.value, (candidate.size,), candidate.weight, candidate.bias, candidate.norm.eps
