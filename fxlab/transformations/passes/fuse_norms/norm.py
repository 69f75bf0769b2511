"""The base of passes that compute a normalisation by one function."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch.fx import Node

from fxlab.node_info import dtype_name, known_shape
from fxlab.operators import computed_by, computes, is_aten, told_dtype
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import OpOverload, is_concrete_int, statically_known_true
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed_dtypes
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same, why_of_use_elsewhere
from fxlab.transformations.analysis.strides import is_known_contiguous, layout_matters
from fxlab.transformations.calls.casts import is_cast, uncast
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.matching import Found, Matcher
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import either, read_once
from fxlab.transformations.rewriting.dtype_checks import (
    all_dtype_checks,
    dtype_checks,
    is_dtype_checked,
    move_dtype_checks,
    refuse_autocast,
)
from fxlab.transformations.rewriting.editor import Editor

_ROOTS = frozenset({"sqrt", "rsqrt", "pow"})
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def rms_norm(x: Any, eps: float) -> Any:
    """Divide by the root of the mean square."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def layer_norm(x: Any, eps: float) -> Any:
    """Subtract the mean, and divide by the root of the variance."""
    square = (x - x.mean(-1, keepdim=True)).pow(2)
    variance = either(x.var(-1, unbiased=False, keepdim=True), square.mean(-1, keepdim=True))
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)


@dataclass(frozen=True)
class Normalization:
    """``x / sqrt(mean(x**2) + eps)``, or the same of ``x - mean(x)``, over the last dimension."""

    node: Node
    value: Node
    """What is normalised, before casts."""
    casts: tuple[Node, ...]
    """Casts of :attr:`value` that the arithmetic reads, which others may read as well."""
    eps: float
    inner: tuple[Node, ...]
    """What is computed between the casts and :attr:`node`."""


@dataclass(frozen=True)
class WrittenNorm:
    """A normalisation, and the weight and the bias that follow it, if there are any."""

    node: Node
    """The last node, which becomes the call."""
    norm: Normalization
    size: int = 0
    """The last size of what is normalised."""
    weight: Node | None = None
    bias: Node | None = None
    value: Node | None = None
    """What the function is to be given: what is normalised, or a cast of that."""
    inner: tuple[Node, ...] = ()
    """What would go, beside casts of what is normalised."""
    checks: tuple[Node, ...] = ()
    """Nodes that check the dtype of what is computed between."""
    misfit: Refusal | None = field(default=None, compare=False)
    """Why its dtypes or sizes are none that the function takes."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The last node."""
        return (self.node,)


class FuseNorm(MatchingPass[WrittenNorm]):
    """A pass that computes a normalisation by one function."""

    around: ClassVar = _ROOTS
    only_casts: ClassVar = True
    has_bias: ClassVar[bool]
    """Whether the function takes a bias."""
    function: ClassVar[Callable[..., torch.Tensor]]
    overload: ClassVar[OpOverload]
    """The same in exported graphs."""

    @abstractmethod
    def arguments(self, candidate: WrittenNorm) -> tuple[Any, ...]:
        """Return what the function is given."""

    def match(self, facts: GraphFacts) -> Iterator[WrittenNorm]:
        """Yield the normalisations, each with the weight and the bias that it is followed by."""
        index = GraphIndex(facts, only_casts=True)
        own, centred = (Matcher(read_once(each)[0], index) for each in (self.looks_for[0], layer_norm))
        is_of_layers = self.looks_for[0] is layer_norm
        for node in _products_with_roots(index):
            reads_difference = any(computed_by(uncast(each)[0]) == "sub" for each in node.all_input_nodes)
            for _, found in own.matches([node] if reads_difference or not is_of_layers else []):
                norm = _normalization(node, found)
                if norm is None:
                    continue
                if is_of_layers or not (reads_difference and any(centred.matches([node]))):
                    yield self._whole(norm)

    def refuse(self, candidate: WrittenNorm, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written in between, and what the function would do otherwise."""
        if candidate.misfit is not None:
            return candidate.misfit
        node, own = candidate.node, {candidate.node, *candidate.inner, *candidate.checks}
        if reason := why_of_use_elsewhere(candidate.inner, own, facts.writes):
            return reason
        read = (candidate.norm.value, candidate.value, candidate.weight, candidate.bias)
        readers = first_readers(read, (*candidate.inner, *candidate.norm.casts, node))
        if reason := why_not_the_same(readers, node, facts.writes):
            return reason
        if (reader := facts.rounding_readers.get(node)) is not None:
            return Reason.ROUNDED_LATER(reader=reader.name)
        if layout_matters(node, facts.graph_module) and not is_known_contiguous(candidate.norm.value):
            return Reason.OTHER_LAYOUT()
        return None

    def describe(self, candidate: WrittenNorm) -> str:
        """Tell how many nodes become one."""
        return f"{len(candidate.inner) + 1} nodes become {self.overload._schema.name.partition('::')[2]}"

    def rewrite(self, candidate: WrittenNorm, edit: Editor) -> Node:
        """Let the last node call the function, and erase what only it needed."""
        node, value = candidate.node, candidate.value
        if value is None:
            raise ValueError("A normalisation has a value.")
        if told_dtype(value) is None and not is_dtype_checked(value):
            refuse_autocast(node, edit, type(self).__name__, "where its dtypes may be others")
        target = self.overload if is_aten(candidate.norm.node) else self.function
        edit.change(node, op="call_function", target=target, args=self.arguments(candidate), kwargs={})
        moved = dtype_checks(node, candidate.inner)
        move_dtype_checks(moved, node, edit)
        for check in candidate.checks:
            if check not in moved:
                edit.erase(check)
        for inner in sorted(candidate.inner, reverse=True):
            edit.erase(inner)
        for cast in candidate.norm.casts:
            if not cast.users:
                edit.erase(cast)
        return node

    def _whole(self, norm: Normalization) -> WrittenNorm:
        """Return a normalisation with as much of what follows as the function computes."""
        shape = known_shape(norm.value)
        if shape is None:
            return WrittenNorm(norm.node, norm, misfit=Reason.UNKNOWN_SHAPE(value=norm.value.name))
        if not shape or not is_concrete_int(shape[-1]):
            return WrittenNorm(norm.node, norm, misfit=Reason.OPEN_SIZE(value=norm.value.name))
        plain = WrittenNorm(norm.node, norm, int(shape[-1]), inner=norm.inner)
        ends = [plain, *self._with_factors(plain)]
        fits = [_fitting(end, value) for end in reversed(ends) for value in (*norm.casts, norm.value)]
        return next((end for end in fits if end.misfit is None), fits[0])

    def _with_factors(self, plain: WrittenNorm) -> Iterator[WrittenNorm]:
        """Yield a normalisation with a weight, and with a weight and a bias."""
        scaled = _followed_by("mul", plain)
        if scaled is None:
            return
        node, weight, inner = scaled
        with_weight = replace(plain, node=node, weight=weight, inner=inner)
        yield with_weight
        if self.has_bias and (shifted := _followed_by("add", with_weight)) is not None:
            node, bias, inner = shifted
            yield replace(with_weight, node=node, bias=bias, inner=inner)


def _products_with_roots(index: GraphIndex) -> list[Node]:
    """Return the products and quotients of roots, perhaps through casts, in the order of the graph."""
    pending = [node for node in index.position if computed_by(node) in _ROOTS]
    found = set[Node]()
    while pending:
        for user in pending.pop().users:
            name = computed_by(user)
            if name in ("mul", "div"):
                found.add(user)
            if is_cast(user) or name == "reciprocal" or (name in ("mul", "div") and 1 in user.args):
                pending.append(user)
    return sorted(found, key=index.position.__getitem__)


def _normalization(node: Node, found: Found) -> Normalization | None:
    """Return a match, with what is normalised before casts; ``None`` if the epsilon is computed."""
    value, casts = uncast(found.captured["x"])
    if not isinstance(value, Node) or type(found.captured["eps"]) not in (int, float):
        return None
    casts += tuple(each for each in found.nodes if is_cast(each) and uncast(each)[0] is value)
    inner = tuple(each for each in found.nodes if each not in casts and each is not node)
    return Normalization(node, value, tuple(dict.fromkeys(casts)), found.captured["eps"], inner)


def _followed_by(name: str, end: WrittenNorm) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """Return what alone reads a normalisation and a tensor of its last size; that tensor; what is between."""
    value, inner = end.node, list(end.inner)
    while True:
        readers = [user for user in value.users if user not in all_dtype_checks([value])]
        if len(readers) != 1:
            return None
        inner.append(value)
        (reader,) = readers
        if not is_cast(reader):
            break
        value = reader
    if computed_by(reader) != name or len(reader.args) != 2 or reader.kwargs:
        return None
    others = [other for other in reader.args if other is not value]
    other: Any = others[0] if len(others) == 1 else None
    shape = known_shape(other) if isinstance(other, Node) else None
    if shape is None or len(shape) != 1 or not statically_known_true(shape[0] == end.size):
        return None
    return reader, other, tuple(inner)


def _fitting(end: WrittenNorm, value: Node) -> WrittenNorm:
    """Return a normalisation that is given a value, with why its dtypes do not fit."""
    given = [node for node in (value, end.weight, end.bias, end.node) if node is not None]
    dtypes = {node: known_dtype(node) for node in (*given, *end.norm.casts, *end.inner)}
    # What the dtypes of inner values are follows from that of the value, if that is checked.
    checks = (all_dtype_checks if is_dtype_checked(value) else partial(dtype_checks, end.node))(end.inner)
    end = replace(end, value=value, checks=checks)
    unknown = next((node for node, dtype in dtypes.items() if dtype is None and not _is_pair(node)), None)
    if unknown is not None:
        return replace(end, misfit=Reason.UNKNOWN_DTYPE(value=unknown.name))
    (dtype, *_) = given_dtypes = [dtypes[node] for node in given]
    if reason := why_mixed_dtypes(given_dtypes):
        return replace(end, misfit=reason)
    for node, inner in dtypes.items():
        if inner is None:
            continue
        if inner not in _DTYPES or dtype not in _DTYPES or torch.finfo(inner).eps > torch.finfo(dtype).eps:
            return replace(end, misfit=Reason.DTYPE(value=node.name, dtype=dtype_name(inner)))
    return end


def _is_pair(node: Node) -> bool:
    """Tell whether a node returns a variance and a mean."""
    return computes(node) == "var_mean"
