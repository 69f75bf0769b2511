"""Compute normalisations that are written as arithmetic by one function."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import is_concrete_int, statically_known_true
from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.strides import is_known_contiguous, layout_matters
from fxlab.transformations.calls.term import Term
from fxlab.transformations.patterns.fusing_pass import Call, FusingPass, Written
from fxlab.transformations.patterns.pattern import either

_ATEN = torch.ops.aten


def rms_norm(x: Any, eps: float, weight: torch.Tensor) -> Any:
    """Divide by the root of the mean square."""
    norm = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return either(norm * weight, norm)


def layer_norm(x: Any, eps: float, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    """Subtract the mean, and divide by the root of the variance."""
    centred = x - x.mean(-1, keepdim=True)
    variance = either(x.var(-1, unbiased=False, keepdim=True), centred.pow(2).mean(-1, keepdim=True))
    norm = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)
    return either(norm * weight + bias, norm * weight, norm)


class FuseNorm(FusingPass):
    """A pass that computes a normalisation by one function."""

    around: ClassVar = frozenset({"sqrt", "rsqrt", "pow"})

    def is_core(self, term: Term) -> bool:
        """Tell whether a power is a root."""
        return term.args["exponent"] in (0.5, -0.5)

    def why_other(self, candidate: Written) -> Refusal | None:
        """Refuse an unknown last size, and a weight or bias without one number for each index of it."""
        x, captured = candidate.captured["x"], candidate.captured
        shape = known_shape(x)
        if shape is None:
            return Reason.UNKNOWN_SHAPE(value=x.name)
        if not shape or not is_concrete_int(shape[-1]):
            return Reason.OPEN_SIZE(value=x.name)
        shapes = [known_shape(captured[name]) for name in ("weight", "bias") if name in captured]
        if not all(
            s is not None and len(s) == 1 and statically_known_true(s[0] == shape[-1]) for s in shapes
        ):
            return Reason.UNEQUAL_SHAPES()
        return None

    def refuse(self, candidate: Written, facts: GraphFacts) -> Refusal | None:
        """Refuse a layout that the function would not keep."""
        if reason := super().refuse(candidate, facts):
            return reason
        if layout_matters(candidate.node, facts.graph_module) and not is_known_contiguous(
            candidate.captured["x"]
        ):
            return Reason.OTHER_LAYOUT()
        return None

    def why_no_autocast(self, candidate: Written) -> str | None:
        """Say so if nothing tells the dtype of the value."""
        return "where its dtypes may be others"

    def arguments(self, candidate: Written) -> tuple[Any, ...]:
        """Return the value, its size, the weight, the bias and the epsilon."""
        captured = candidate.captured
        size = int((known_shape(captured["x"]) or ())[-1])
        return candidate.value, (size,), captured.get("weight"), captured.get("bias"), captured["eps"]


@dataclass(frozen=True)
class FuseRMSNorm(FuseNorm):
    """Compute RMS norms by ``torch.nn.functional.rms_norm``.

    It fuses ``x / sqrt(mean(x**2) + eps)`` over the last dimension, with optional casts in between and an
    optional weight (Zhang and Sennrich 2019). The result is equal up to rounding: half precision is not
    rounded in between. On CPUs torch runs the same arithmetic without Python in between, so small models gain
    a few percent, and large tensors nothing; for GPUs torch has a kernel. Shapes and dtypes must be known:
    trace with ``fxlab.symbolic_trace``, or run ``ShapeProp``. A graph whose dtypes may differ under autocast
    refuses to run there. The last product is marked.

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
    left_to_others: ClassVar = (layer_norm,)

    def call(self, candidate: Written) -> Call:
        """Return the call of ``rms_norm``."""
        value, size, weight, _, eps = self.arguments(candidate)
        return functional.rms_norm, _ATEN.rms_norm.default, (value, size, weight, eps), {}


@dataclass(frozen=True)
class FuseLayerNorm(FuseNorm):
    """Compute layer norms by ``torch.nn.functional.layer_norm``.

    It fuses ``(x - mean(x)) / sqrt(var(x) + eps)`` over the last dimension, with optional casts in between,
    and an optional weight and bias (Ba et al. 2016). Models and decomposed graphs write it out. The result is
    equal up to rounding: half precision is not rounded in between. Shapes and dtypes must be known: trace
    with ``fxlab.symbolic_trace``, or run ``ShapeProp``. A graph whose dtypes may differ under autocast
    refuses to run there. The last node is marked.

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

    def call(self, candidate: Written) -> Call:
        """Return the call of ``layer_norm``."""
        return functional.layer_norm, _ATEN.layer_norm.default, self.arguments(candidate), {}
