"""Compute activations that are written as arithmetic by one function."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.fx import Node
from torch.nn import functional

from fxlab.node_info import dtype_name
from fxlab.operators import computed_by, is_aten, told_dtype
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import OpOverload
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed_dtypes
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same, why_of_use_elsewhere
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.rewriting.dtype_checks import refuse_autocast
from fxlab.transformations.rewriting.editor import Editor

_ATEN = torch.ops.aten
_FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], OpOverload, dict[str, Any]]] = {
    "silu": (functional.silu, _ATEN.silu.default, {}),
    "gelu": (functional.gelu, _ATEN.gelu.default, {}),
    "gelu-tanh": (functional.gelu, _ATEN.gelu.default, {"approximate": "tanh"}),
}
_TOLERANCE = 1e-11
"""How far constants may be from those of torch: ``sqrt(2 / pi)`` is 0.7978845608 in models, to ten digits."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


Polynomial = dict[tuple[int, int], float]
"""Coefficients by the powers of a value and of a function: ``{(1, 0): 2, (1, 1): 3}`` is ``2 x + 3 x f``."""

_HALF_OF_BOTH: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
_ROOT = math.sqrt(2 / math.pi)
_ACTIVATIONS: dict[str, tuple[str, Polynomial, Polynomial]] = {
    "silu": ("sigmoid", {(1, 0): 1.0}, {(1, 1): 1.0}),
    "gelu": ("erf", {(1, 0): math.sqrt(0.5)}, _HALF_OF_BOTH),
    "gelu-tanh": ("tanh", {(1, 0): _ROOT, (3, 0): _ROOT * 0.044715}, _HALF_OF_BOTH),
}
"""For each activation the function in it, what that is given, and what becomes of its result."""

_FURTHEST = 1e-6
"""How far constants may be from those of torch's function for the arithmetic to be meant as that."""
_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "neg", "square"})
_DEGREE, _STEPS = 4, 5


def silu(x: Any) -> Any:
    """Multiply by the sigmoid."""
    return x * torch.sigmoid(x)


def gelu(x: Any) -> Any:
    """Multiply by the distribution function of the normal distribution."""
    return 0.5 * x * (1 + torch.erf(math.sqrt(0.5) * x))


def gelu_by_tanh(x: Any) -> Any:
    """Approximate that by a tanh."""
    return 0.5 * x * (1 + torch.tanh(_ROOT * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Activation:
    """An activation function of a value that is written as arithmetic, however its factors are arranged."""

    node: Node
    """The last node, which becomes the call."""
    value: Node
    kind: str
    """``"silu"``, ``"gelu"`` or ``"gelu-tanh"``, its approximation by a tanh."""
    inner: tuple[Node, ...]
    """The nodes between the two."""
    error: float
    """The largest relative distance of a constant from that of torch's function."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The last node."""
        return (self.node,)


@dataclass(frozen=True)
class FuseActivation(MatchingPass[Activation]):
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

    looks_for: ClassVar = (silu, gelu, gelu_by_tanh)
    around: ClassVar = frozenset(entry[0] for entry in _ACTIVATIONS.values())

    def match(self, facts: GraphFacts) -> Iterator[Activation]:
        """Yield the activations, by the function that is in each."""
        for node in list(facts.graph_module.graph.nodes):
            if (found := _as_activation(node)) is not None:
                yield found

    def refuse(self, candidate: Activation, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written in between, and what is rounded to integers later."""
        if candidate.error > _TOLERANCE:
            return Reason.CONSTANTS(function=candidate.kind, error=f"{candidate.error:.1g}")
        node, own = candidate.node, {*candidate.inner, candidate.node}
        if reason := why_of_use_elsewhere(candidate.inner, own, facts.writes):
            return reason
        if reason := why_not_the_same(first_readers([candidate.value], own), node, facts.writes):
            return reason
        if (reader := facts.rounding_readers.get(node)) is not None:
            return Reason.ROUNDED_LATER(reader=reader.name)
        return _why_dtypes_differ(candidate)

    def describe(self, candidate: Activation) -> str:
        """Tell how many nodes become one."""
        return f"{len(candidate.inner) + 1} nodes become {candidate.kind.partition('-')[0]}"

    def rewrite(self, candidate: Activation, edit: Editor) -> Node:
        """Let the last node call the function, and erase what only it needed."""
        node, value = candidate.node, candidate.value
        function, overload, kwargs = _FUNCTIONS[candidate.kind]
        has_power = any(computed_by(each) in ("pow", "square") for each in candidate.inner)
        if has_power and told_dtype(value) not in (torch.float32, torch.float64):
            refuse_autocast(node, edit, type(self).__name__, "where powers have another dtype")
        target: Any = overload if is_aten(node) else function
        edit.change(node, op="call_function", target=target, args=(value,), kwargs=kwargs)
        for inner in reversed(candidate.inner):
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


def _as_activation(function: Node) -> Activation | None:
    """Return the activation that a call of sigmoid, tanh or erf is a part of, in any dialect.

    The arithmetic around the call is multiplied out, so that its order does not matter.
    """
    name = computed_by(function)
    known = {kind: entry for kind, entry in _ACTIVATIONS.items() if entry[0] == name}
    if not known or not function.args or not isinstance(function.args[0], Node):
        return None
    for kind, (_, given, made) in known.items():
        for value in _operands(function.args[0]):
            inner = {function}
            error = _error(_polynomial(function.args[0], {value: (1, 0)}, inner), given)
            if error > _FURTHEST:
                continue
            for node in _results(function):
                own = set(inner)
                other = _error(_polynomial(node, {value: (1, 0), function: (0, 1)}, own), made)
                if other <= _FURTHEST:
                    return Activation(node, value, kind, tuple(sorted(own - {node})), max(error, other))
    return None


def _operands(value: Node) -> Iterator[Node]:
    """Yield a value and what it is computed from, as far as that is arithmetic of numbers and one value."""
    seen, pending = {value}, [value]
    while pending and len(seen) < 2 * _STEPS:
        node = pending.pop(0)
        yield node
        reads = node.all_input_nodes if _is_arithmetic(node) else []
        pending += [read for read in reads if read not in seen]
        seen.update(reads)


def _results(function: Node) -> Iterator[Node]:
    """Yield the arithmetic that a function goes into, nearest first."""
    level = [function]
    for _ in range(_STEPS):
        level = list(dict.fromkeys(user for node in level for user in node.users if _is_arithmetic(user)))
        yield from level


def _is_arithmetic(node: Node) -> bool:
    return computed_by(node) in _ARITHMETIC and not node.kwargs


def _polynomial(value: Any, leaves: Mapping[Node, tuple[int, int]], inner: set[Node]) -> Polynomial | None:
    """Multiply out what computes a value; ``None`` if it is no polynomial in the leaves.

    Parameters
    ----------
    value
        A node or a number.
    leaves
        The powers of the two variables that nodes stand for.
    inner
        To which the nodes of the arithmetic are added.
    """
    if type(value) in (int, float):
        return {(0, 0): float(value)}
    if not isinstance(value, Node):
        return None
    if value in leaves:
        return {leaves[value]: 1.0}
    if not _is_arithmetic(value):
        return None
    inner.add(value)
    name, args = computed_by(value), value.args
    first = _polynomial(args[0], leaves, inner)
    if first is None:
        return None
    if name == "neg":
        return _times(first, {(0, 0): -1.0})
    if name == "square":
        return _times(first, first)
    if len(args) != 2:
        return None
    if name == "pow":
        return _power(first, args[1])
    second = _polynomial(args[1], leaves, inner)
    if second is None:
        return None
    if name == "mul":
        return _times(first, second)
    if name == "div":
        is_number = second.keys() == {(0, 0)} and second[0, 0]
        return _times(first, {(0, 0): 1 / second[0, 0]}) if is_number else None
    if name == "rsub":
        first, second = second, first
    sign = 1.0 if name == "add" else -1.0
    return {key: first.get(key, 0.0) + sign * second.get(key, 0.0) for key in {*first, *second}}


def _power(base: Polynomial, exponent: Any) -> Polynomial | None:
    if exponent not in (2, 3):
        return None
    square = _times(base, base)
    return square if exponent == 2 or square is None else _times(square, base)


def _times(first: Polynomial, second: Polynomial) -> Polynomial | None:
    product: Polynomial = {}
    for (i, j), factor in first.items():
        for (k, m), other in second.items():
            product[i + k, j + m] = product.get((i + k, j + m), 0.0) + factor * other
    return product if all(sum(powers) <= _DEGREE for powers in product) else None


def _error(found: Polynomial | None, expected: Polynomial) -> float:
    """Return how far coefficients are from others, relative to these; infinite where there are others."""
    left = {key: factor for key, factor in (found or {}).items() if factor}
    if left.keys() != expected.keys():
        return math.inf
    return max(abs(left[key] / expected[key] - 1) for key in expected)
