"""Compute activations that are written as arithmetic by one function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators import computed_by
from fxlab.transformations.analysis.dtypes_and_sizes import is_cast
from fxlab.transformations.patterns.fusing_pass import Call, FusingPass, Written
from fxlab.transformations.patterns.pattern import either

_ATEN = torch.ops.aten
_ROOT = math.sqrt(2 / math.pi)
_TOLERANCE = 1e-11
"""The tolerance for constants: models write ``sqrt(2 / pi)`` as 0.7978845608, to ten digits."""


def silu(x: Any) -> Any:
    """Multiply by the sigmoid."""
    return x * torch.sigmoid(x)


def gelu(x: Any, half: float, root: float) -> Any:
    """Multiply by the distribution function of the normal distribution."""
    return half * x * (1 + torch.erf(root * x))


def gelu_by_tanh(x: Any, half: float, root: float, factor: float) -> Any:
    """Approximate that by a tanh."""
    square, cube = either(factor * x * x, factor * x**2), either(factor * x**3, factor * x * x * x)
    return half * x * (1 + torch.tanh(either(root * (x + cube), root * x * (1 + square))))


_CONSTANTS: dict[Callable[..., Any], dict[str, float]] = {
    silu: {},
    gelu: {"half": 0.5, "root": math.sqrt(0.5)},
    gelu_by_tanh: {"half": 0.5, "root": _ROOT, "factor": 0.044715},
}


@dataclass(frozen=True)
class FuseActivation(FusingPass):
    """Compute activations that are written as arithmetic by ``silu`` or ``gelu`` of ``torch.nn.functional``.

    It fuses ``x * sigmoid(x)``, ``x * (1 + erf(x / sqrt(2))) / 2`` and its approximation by a tanh
    (Hendrycks and Gimpel 2016), with factors in any order: GPT-2 writes the latter as eight operations, and
    compilers decompose ``silu``. An activation with constants rounded to fewer than ten digits is another
    function, and stays. The result is equal up to rounding: half precision is not rounded in between;
    ``gelu`` of infinity is NaN on CPUs. Dtypes must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. A graph with powers in them refuses to run under autocast, which computes powers in single
    precision. The last node is marked.

    Examples
    --------
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> class Activation(torch.nn.Module):
    ...     def forward(self, x):
    ...         return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    >>> traced = torch.fx.symbolic_trace(Activation())
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 8))
    >>> fuse = FuseActivation()
    >>> [node.name for node in fuse(traced).graph.nodes]
    ['x', 'mul_5', 'output']
    >>> fuse.get_transformed_nodes(traced)[0].kwargs
    {'approximate': 'tanh'}
    """

    looks_for: ClassVar = (silu, gelu, gelu_by_tanh)
    around: ClassVar = frozenset({"sigmoid", "erf", "tanh"})

    def call(self, candidate: Written) -> Call:
        """Return the call of ``silu`` or ``gelu``."""
        if candidate.pattern is silu:
            return functional.silu, _ATEN.silu.default, (candidate.value,), {}
        settings = {"approximate": "tanh"} if candidate.pattern is gelu_by_tanh else {}
        return functional.gelu, _ATEN.gelu.default, (candidate.value,), settings

    def why_other(self, candidate: Written) -> Refusal | None:
        """Refuse constants that differ from torch's."""
        pairs = [(candidate.captured[name], number) for name, number in _CONSTANTS[candidate.pattern].items()]
        is_fixed = all(type(mine) in (int, float) for mine, _ in pairs)
        error = max((abs(a / b - 1) for a, b in pairs), default=0.0) if is_fixed else math.inf
        name = candidate.pattern.__name__.replace("_by_", "-")
        return None if error <= _TOLERANCE else Reason.CONSTANTS(function=name, error=f"{error:.1g}")

    def why_no_autocast(self, candidate: Written) -> str | None:
        """Say so if powers or casts have another dtype than their input."""
        has_power = any(computed_by(each) in ("pow", "square") for each in candidate.inner)
        has_cast = bool(candidate.casts) or any(map(is_cast, candidate.inner))
        return "where powers have another dtype" if has_power or has_cast else None
