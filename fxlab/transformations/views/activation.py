"""Activations written as arithmetic: a value times a sigmoid, a tanh or an error function of it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from fxlab.transformations.views.layer import computed_by

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

_TOLERANCE = 1e-6
"""How far constants may be from those of torch's function for the arithmetic to be meant as that."""
_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "neg", "square"})
_DEGREE, _STEPS = 4, 5


@dataclass(frozen=True)
class Activation:
    """An activation function of a value, however its factors are arranged."""

    node: Node
    """The last node."""
    value: Node
    kind: str
    """``"silu"``, ``"gelu"`` or ``"gelu-tanh"``, its approximation by a tanh."""
    inner: tuple[Node, ...]
    """What is computed between the two."""
    error: float
    """How far a constant is from that of torch's function, relative to it."""


def as_activation(function: Node) -> Activation | None:
    """Return the activation that a call of sigmoid, tanh or erf is a part of, in any dialect.

    ``None`` for any other node. The arithmetic around the call is multiplied out, so that it does not matter
    in which order it is written.

    Examples
    --------
    >>> import torch
    >>> graph = torch.fx.symbolic_trace(lambda x: x * torch.sigmoid(x) + 1).graph
    >>> [(found.node, found.value, found.kind) for each in graph.nodes if (found := as_activation(each))]
    [(mul, x, 'silu')]
    """
    name = computed_by(function)
    known = {kind: entry for kind, entry in _ACTIVATIONS.items() if entry[0] == name}
    if not known or not function.args or not isinstance(function.args[0], Node):
        return None
    for kind, (_, given, made) in known.items():
        for value in _operands(function.args[0]):
            inner = {function}
            error = _error(_polynomial(function.args[0], {value: (1, 0)}, inner), given)
            if error > _TOLERANCE:
                continue
            for node in _results(function):
                own = set(inner)
                other = _error(_polynomial(node, {value: (1, 0), function: (0, 1)}, own), made)
                if other <= _TOLERANCE:
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
