"""Normalisations written as arithmetic: a value divided by the root of its mean square or its variance."""

import operator
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from fxlab.node_info import known_shape
from fxlab.operators import argument, computes
from fxlab.transformations.views.casts import uncast
from fxlab.transformations.views.layer import computed_by


@dataclass(frozen=True)
class Normalization:
    """``x / sqrt(mean(x**2) + eps)``, or the same of ``x - mean(x)``, over the last dimension."""

    node: Node
    value: Node
    """What is normalised, before casts."""
    casts: tuple[Node, ...]
    """Casts of :attr:`value` that the arithmetic reads, which others may read as well."""
    eps: float
    is_centred: bool
    """Whether the mean is subtracted first, as layer norms do."""
    inner: tuple[Node, ...]
    """What is computed between the casts and :attr:`node`."""


@dataclass(frozen=True)
class _Part:
    """A part of the arithmetic: what it reads, and its own nodes."""

    reads: tuple[Any, ...]
    inner: tuple[Node, ...] = ()


def as_normalization(node: Node) -> Normalization | None:
    """Return the normalisation that a product or quotient ends, in any dialect; ``None`` for others.

    Examples
    --------
    >>> import torch
    >>> def normalised(x):
    ...     return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    >>> graph = torch.fx.symbolic_trace(normalised).graph
    >>> found = [norm for each in graph.nodes if (norm := as_normalization(each))]
    >>> [(norm.node, norm.value, norm.eps, norm.is_centred) for norm in found]
    [(mul, x, 1e-06, False)]
    """
    name = computed_by(node)
    if name not in ("mul", "div") or not _has_args(node, 2):
        return None
    pairs = [node.args, node.args[::-1]] if name == "mul" else [node.args]
    found = (_read(node, *pair, is_inverse=name == "mul") for pair in pairs)
    return next((norm for norm in found if norm is not None), None)


def _read(node: Node, numerator: Any, root: Any, *, is_inverse: bool) -> Normalization | None:
    radicand = _inverse_root(root) if is_inverse else _root(root)
    shifted = None if radicand is None else _shifted(radicand.reads[0])
    if radicand is None or shifted is None:
        return None
    (moment, eps), centred = shifted.reads, _centred(numerator)
    spread = _variance(moment)
    is_centred = spread is not None
    if spread is None:
        if (spread := _mean_square(moment)) is None:
            return None
        also_centred = _centred(spread.reads[0])
        if (centred is None) != (also_centred is None):
            return None
        if also_centred is not None:
            is_centred = True
            spread = _Part(also_centred.reads, (*spread.inner, *also_centred.inner))
    if is_centred and centred is None:
        return None
    start = _Part((numerator,)) if centred is None else centred
    sources = [uncast(value) for value in (*start.reads, *spread.reads)]
    (value, *others) = {source for source, _ in sources}
    inner = dict.fromkeys((*radicand.inner, *shifted.inner, *spread.inner, *start.inner))
    if others or not isinstance(value, Node) or value in inner:
        return None
    casts = dict.fromkeys(cast for _, casts in sources for cast in casts)
    return Normalization(node, value, tuple(casts), eps, is_centred, tuple(inner))


def _has_args(node: Node, count: int) -> bool:
    return len(node.args) == count and not node.kwargs


def _inverse_root(value: Any) -> _Part | None:
    """Read ``v ** -0.5``, in any way of writing it."""
    value, casts = uncast(value)
    if not isinstance(value, Node):
        return None
    name, inner = computed_by(value), (*casts, value)
    if name == "rsqrt" and _has_args(value, 1):
        return _Part(value.args, inner)
    if name == "pow" and _has_args(value, 2) and value.args[1] == -0.5:
        return _Part(value.args[:1], inner)
    if name == "mul" and _has_args(value, 2) and 1 in (factors := [*value.args]):  # 1 / x, when exported
        factors.remove(1)
        inverse = _inverse_root(factors[0])
        return None if inverse is None else _Part(inverse.reads, (*inner, *inverse.inner))
    is_one_over = name == "div" and _has_args(value, 2) and value.args[0] == 1
    if is_one_over or (name == "reciprocal" and _has_args(value, 1)):
        root = _root(value.args[-1])
        return None if root is None else _Part(root.reads, (*inner, *root.inner))
    return None


def _root(value: Any) -> _Part | None:
    value, casts = uncast(value)
    if not isinstance(value, Node):
        return None
    name = computed_by(value)
    is_root = name == "sqrt" and _has_args(value, 1)
    is_power = name == "pow" and _has_args(value, 2) and value.args[1] == 0.5
    return _Part(value.args[:1], (*casts, value)) if is_root or is_power else None


def _shifted(value: Any) -> _Part | None:
    """Read the sum of a value and a number."""
    value, casts = uncast(value)
    if not isinstance(value, Node) or computed_by(value) != "add" or not _has_args(value, 2):
        return None
    for moment, eps in (value.args, value.args[::-1]):
        if isinstance(moment, Node) and type(eps) in (int, float):
            return _Part((moment, eps), (*casts, value))
    return None


def _mean_square(value: Any) -> _Part | None:
    mean = _mean(value)
    square, casts = uncast(mean.reads[0]) if mean is not None else (None, ())
    if mean is None or not isinstance(square, Node):
        return None
    name, inner = computed_by(square), (*mean.inner, *casts, square)
    is_power = name == "pow" and _has_args(square, 2) and square.args[1] == 2
    is_product = name == "mul" and _has_args(square, 2) and square.args[0] is square.args[1]
    if is_power or is_product or (name == "square" and _has_args(square, 1)):
        return _Part(square.args[:1], inner)
    return None


def _mean(value: Any) -> _Part | None:
    """Read the mean of the last dimension, which is kept."""
    value, casts = uncast(value)
    statistics = _statistics(value, 1)
    if statistics is not None:
        return _Part(statistics.reads, (*casts, *statistics.inner))
    if not isinstance(value, Node) or computed_by(value) != "mean" or not value.args:
        return None
    if argument(value, "dtype") is not None or argument(value, "keepdim") is not True:
        return None
    return _Part(value.args[:1], (*casts, value)) if _is_of_last(value, argument(value, "dim")) else None


def _variance(value: Any) -> _Part | None:
    """Read the variance of the last dimension, which is kept, without a correction."""
    value, casts = uncast(value)
    statistics = _statistics(value, 0)
    if statistics is not None:
        return _Part(statistics.reads, (*casts, *statistics.inner))
    if not isinstance(value, Node) or computes(value) != "var" or not _is_uncorrected(value):
        return None
    return _Part(value.args[:1], (*casts, value))


def _statistics(value: Any, index: int) -> _Part | None:
    """Read the variance (0) or the mean (1) that ``var_mean`` returns."""
    if not isinstance(value, Node) or value.target is not operator.getitem or value.args[1] != index:
        return None
    both = value.args[0]
    if not isinstance(both, Node) or computes(both) != "var_mean" or not _is_uncorrected(both):
        return None
    return _Part(both.args[:1], (value, both))


def _is_uncorrected(node: Node) -> bool:
    """Tell whether a variance is that of the last dimension, which is kept, divided by its size."""
    given = dict(zip(("input", "dim", "unbiased", "keepdim"), node.args, strict=False)) | dict(node.kwargs)
    corrections = [given[name] for name in ("unbiased", "correction") if name in given]
    is_plain = len(corrections) == 1 and corrections[0] in (False, 0) and corrections[0] is not None
    return is_plain and given.get("keepdim") is True and _is_of_last(node, given.get("dim"))


def _is_of_last(node: Node, dim: Any) -> bool:
    dims = list(dim) if isinstance(dim, list | tuple) else [dim]
    value = node.args[0]
    shape = known_shape(value) if isinstance(value, Node) else None
    last = [-1] if shape is None else [-1, len(shape) - 1]
    return len(dims) == 1 and type(dims[0]) is int and dims[0] in last


def _centred(value: Any) -> _Part | None:
    """Read the difference of a value and its mean; what it reads are both, before casts."""
    value, casts = uncast(value)
    if not isinstance(value, Node) or computed_by(value) != "sub" or not _has_args(value, 2):
        return None
    minuend, subtrahend = value.args
    mean = _mean(subtrahend)
    if mean is None or uncast(minuend)[0] is not uncast(mean.reads[0])[0]:
        return None
    return _Part((minuend, *mean.reads), (*casts, value, *mean.inner))
