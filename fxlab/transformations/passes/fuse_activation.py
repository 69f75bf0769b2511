"""Compute activations that are written as arithmetic by one function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.nn import functional

from fxlab.node_info import dtype_name
from fxlab.operators import told_dtype
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import OpOverload
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed_dtypes
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same, why_of_use_elsewhere
from fxlab.transformations.rewriting.dtype_checks import refuse_autocast
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.activation import Activation, as_activation
from fxlab.transformations.views.layer import computed_by, is_aten

_ATEN = torch.ops.aten
_FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], OpOverload, dict[str, Any]]] = {
    "silu": (functional.silu, _ATEN.silu.default, {}),
    "gelu": (functional.gelu, _ATEN.gelu.default, {}),
    "gelu-tanh": (functional.gelu, _ATEN.gelu.default, {"approximate": "tanh"}),
}
_TOLERANCE = 1e-11
"""How far constants may be from those of torch: ``sqrt(2 / pi)`` is 0.7978845608 in models, to ten digits."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class WrittenActivation:
    """An activation that is written as arithmetic."""

    activation: Activation

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The last node, which becomes the call."""
        return (self.activation.node,)


@dataclass(frozen=True)
class FuseActivation(RewritePass[WrittenActivation]):
    """Compute activations that are written as arithmetic by ``silu`` or ``gelu`` of ``torch.nn.functional``.

    Fused are ``x * sigmoid(x)``, ``x * (1 + erf(x / sqrt(2))) / 2`` and its approximation by a tanh
    (Hendrycks and Gimpel 2016), in whatever order the factors are written: GPT-2 writes the latter out as
    eight operations, and compilers decompose ``silu``. Constants that a model rounds to fewer than ten
    digits are others, and such an activation stays. The result is equal up to rounding: half precision is
    not rounded in between; of infinity ``gelu`` makes NaN on CPUs. Dtypes must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``. A graph with powers in them refuses to run under
    autocast, which computes powers in single precision. The last node is the one that is marked.

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

    def match(self, facts: GraphFacts) -> Iterator[WrittenActivation]:
        """Yield the activations, by the function that is in each."""
        for node in list(facts.graph_module.graph.nodes):
            found = as_activation(node)
            if found is not None:
                yield WrittenActivation(found)

    def refuse(self, candidate: WrittenActivation, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written in between, and what is rounded to integers later."""
        activation, writes = candidate.activation, facts.writes
        if activation.error > _TOLERANCE:
            return Reason.CONSTANTS(function=activation.kind, error=f"{activation.error:.1g}")
        node, value, own = activation.node, activation.value, {*activation.inner, activation.node}
        if reason := why_of_use_elsewhere(activation.inner, own, writes):
            return reason
        if reason := why_not_the_same(first_readers([value], own), node, writes):
            return reason
        if (reader := facts.rounding_readers.get(node)) is not None:
            return Reason.ROUNDED_LATER(reader=reader.name)
        return _why_dtypes_differ(activation)

    def describe(self, candidate: WrittenActivation) -> str:
        """Tell how many nodes become one."""
        count = len(candidate.activation.inner) + 1
        return f"{count} nodes become {candidate.activation.kind.partition('-')[0]}"

    def rewrite(self, candidate: WrittenActivation, edit: Editor) -> Node:
        """Let the last node call the function, and erase what only it needed."""
        activation = candidate.activation
        node, value = activation.node, activation.value
        function, overload, kwargs = _FUNCTIONS[activation.kind]
        has_power = any(computed_by(each) in ("pow", "square") for each in activation.inner)
        if has_power and told_dtype(value) not in (torch.float32, torch.float64):
            refuse_autocast(node, edit, type(self).__name__, "where powers have another dtype")
        target: Any = overload if is_aten(node) else function
        edit.change(node, op="call_function", target=target, args=(value,), kwargs=kwargs)
        for inner in reversed(activation.inner):
            edit.erase(inner)
        return node


def _why_dtypes_differ(activation: Activation) -> Refusal | None:
    nodes = (activation.value, *activation.inner, activation.node)
    dtypes = {node: known_dtype(node) for node in nodes}
    unknown = next((node for node, dtype in dtypes.items() if dtype is None), None)
    if unknown is not None:
        return Reason.UNKNOWN_DTYPE(value=unknown.name)
    if reason := why_mixed_dtypes(dtypes.values()):
        return reason
    dtype, name = dtypes[activation.value], activation.value.name
    return None if dtype in _DTYPES else Reason.DTYPE(value=name, dtype=dtype_name(dtype))
