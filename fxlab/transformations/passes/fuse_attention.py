"""Compute attention that is written as products and a softmax by one function."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import Target
from torch.nn import functional

from fxlab.node_info import dtype_name, known_shape
from fxlab.operators import computed_by, is_aten, operator_of
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import statically_known_true
from fxlab.transformations.analysis.autocast import LARGEST
from fxlab.transformations.analysis.dropout import DROPOUT_MODULES, is_dropout_call
from fxlab.transformations.analysis.first_column import first_column
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_mixed_dtypes, why_not_plain
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same
from fxlab.transformations.analysis.strides import layout_matters
from fxlab.transformations.analysis.value_bounds import is_positive, largest_magnitude
from fxlab.transformations.calls.casts import is_cast
from fxlab.transformations.calls.product import Product, as_product, transposed
from fxlab.transformations.passes.remove_identities import Identity, why_no_identity
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import either
from fxlab.transformations.rewriting.dialects import contiguous_call
from fxlab.transformations.rewriting.dtype_checks import dtype_checks, move_dtype_checks, refuse_autocast
from fxlab.transformations.rewriting.editor import Editor, place_of
from fxlab.transformations.views.fill import Fill, as_fill

_ATEN = torch.ops.aten
_SOFTMAXES = ("softmax", "_softmax")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attention(query: Any, keys: Any, values: Any, scale: float, mask: Any) -> Any:
    """Weigh values by the softmax of scaled products, to which a mask may be added."""
    product = query @ keys
    scores = either(product * scale, product)
    return torch.softmax(either(scores + mask, scores), -1) @ values


@dataclass(frozen=True)
class Attention:
    """A product with the softmax of a product."""

    node: Node
    """The product with the values, which becomes the attention."""
    softmax: Node
    inner: tuple[Node, ...] = ()
    """What is computed between what is read and ``node``, last first."""
    scores: Node | None = None
    """The first product, which is among them."""
    query: Node | None = None
    keys: Node | None = None
    """Transposed, as the first product reads them."""
    values: Node | None = None
    mask: Node | None = None
    fill: Fill | None = None
    """What stands in place of scores, where there is no mask that is added to them."""
    scale: float | Node = 1.0
    divides: bool = False
    """Whether scores are divided by the scale, which is computed from sizes then."""
    largest: float = 0.0
    """A bound of the absolute values in the mask."""
    keeps_a_key: bool = False
    """Whether the mask is known to be finite for the first key of each query."""
    asserted: tuple[Node, ...] = ()
    """Nodes that check the dtype of what is computed between."""
    is_written: bool = False
    """Whether the product with the values is written in place, so that views of it must stay views."""
    misfit: Refusal | None = field(default=None, compare=False)
    """Why it is no attention that can be fused, if something else stands between."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The softmax, which would go."""
        return (self.softmax,)

    @property
    def is_infinite_under_autocast(self) -> bool:
        """Whether the mask may be infinite in the dtype of autocast, which casts what the function reads."""
        added = self.mask if self.fill is None or self.fill.keeps_a_column else self.node
        is_cast = added is not None and known_dtype(added) != torch.float64
        return is_cast and self.largest > LARGEST / 2


@dataclass(frozen=True)
class FuseAttention(MatchingPass[Attention]):
    """Compute attention by ``scaled_dot_product_attention``, which never stores all probabilities.

    Fused is ``softmax(query @ keys.T * scale + mask) @ values``, with the mask, the scale, a softmax in
    single precision and a dropout that drops nothing as they come. The result is equal up to rounding: half
    precision is not rounded in between. A mask must be known to be finite, because where it excludes every
    key with an infinity, the probabilities are nan, and those of the function are zero; or to leave each
    query its first key, as causal masks of constants do. Scores may also be filled, by ``masked_fill`` or
    ``where``: with minus infinity where each query keeps its first key, or with the smallest number of their
    dtype. Other numbers, such as -1e9, are ones that scores may reach. Where a score that is filled is not
    finite itself, the model excludes it, and the function gives NaN. Autocast would make
    a mask of the smallest number of a dtype infinite, so a graph that adds one refuses to run under it.
    Shapes and dtypes must be known: trace with ``fxlab.symbolic_trace``, or run ``ShapeProp``. The last
    product is the one that is marked.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> class Attention(torch.nn.Module):
    ...     def forward(self, q, k, v):
    ...         return (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v + 1
    >>> traced = torch.fx.symbolic_trace(Attention())
    >>> _ = ShapeProp(traced).propagate(*torch.randn(3, 1, 2, 5, 64))
    >>> fuse = FuseAttention()
    >>> [node.name for node in fuse(traced).graph.nodes]
    ['q', 'k', 'v', 'matmul_1', 'add', 'output']
    >>> fuse.get_transformed_nodes(traced)[0].kwargs
    {'attn_mask': None, 'dropout_p': 0.0, 'scale': 0.125}
    """

    looks_for: ClassVar = (attention,)
    around: ClassVar = frozenset(_SOFTMAXES)

    def match(self, facts: GraphFacts) -> Iterator[Attention]:
        """Yield the products with what a softmax has made."""
        for node in list(facts.graph_module.graph.nodes):
            product = as_product(node)
            found = None if product is None else _read(product, facts)
            if found is not None:
                yield found

    def refuse(self, candidate: Attention, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written in between, and what the function would do otherwise."""
        if candidate.misfit:
            return candidate.misfit
        for value in candidate.inner:
            if len(value.users.keys() - {*candidate.asserted}) > 1:
                return Reason.OTHER_USERS(value=value.name)
            if facts.writes.is_written(value):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        return (
            _why_other_state(candidate, facts)
            or _why_dtypes_differ(candidate)
            or _why_shapes_differ(candidate)
            or _why_mask_differs(candidate)
        )

    def behaves_by_mode(self, candidate: Attention, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the calls of dropout modules."""
        return tuple(node for node in candidate.inner if isinstance(facts.module(node), DROPOUT_MODULES))

    def describe(self, candidate: Attention) -> str:
        """Name the product that becomes the attention."""
        return f"{candidate.node.name} becomes scaled_dot_product_attention"

    def rewrite(self, candidate: Attention, edit: Editor) -> Node:
        """Let the last product be the attention, and erase what only it needed."""
        node, keys = candidate.node, candidate.keys
        if keys is None:
            raise ValueError("An attention has keys.")
        plain_keys = transposed(keys)
        erased = list(candidate.inner)
        if plain_keys is None:
            op, target, args = _transposition(node, keys)
            plain_keys = edit.insert_before(
                node, op, target, args, name=f"{node.name}_keys", meta=place_of(node)
            )
        elif len(keys.users) == 1:
            erased.append(keys)
        args = (candidate.query, plain_keys, candidate.values)
        mask = candidate.mask if candidate.fill is None else _mask_of(candidate, candidate.fill, edit)
        kwargs = {"attn_mask": mask, "dropout_p": 0.0, "scale": _scale_of(candidate, edit)}
        function: Any = functional.scaled_dot_product_attention
        if is_aten(node):
            function = _ATEN.scaled_dot_product_attention.default
        if candidate.is_infinite_under_autocast:
            refuse_autocast(node, edit)
        if candidate.is_written or layout_matters(node, edit.graph_module):
            fused = edit.insert_before(
                node,
                "call_function",
                function,
                args,
                kwargs,
                name=f"{node.name}_attention",
                meta=place_of(node),
            )
            op, target, read, settings = contiguous_call(node, fused)
            edit.change(node, op=op, target=target, args=read, kwargs=settings)
        else:
            edit.change(node, op="call_function", target=function, args=args, kwargs=kwargs)
        move_dtype_checks(candidate.asserted, node, edit)
        for value in sorted(erased, reverse=True):
            edit.erase(value)
        return node


def _read(product: Product, facts: GraphFacts) -> Attention | None:
    """Follow the probabilities of a product back to the product that they are made of."""
    node, inner = product.node, list(product.inner)
    value = _skip(product.left, inner, facts)
    if value is None or not _is_softmax(value, facts):
        return None
    softmax = value
    inner.append(softmax)
    if reason := _why_other_softmax(softmax, facts):
        return Attention(node, softmax, misfit=reason)
    value = _skip(_input(softmax), inner, facts)
    mask: Node | None = None
    if value is not None and computed_by(value) == "add" and len(value.args) == 2 and not value.kwargs:
        scores, mask = _scores_and_mask(value, facts)
        if mask is None:
            return Attention(node, softmax, misfit=_why_no_mask(value, facts))
        inner.append(value)
        value = _skip(scores, inner, facts)
    fill: Fill | None = None
    if value is not None and (filling := as_fill(value, facts)) is not None:
        if mask is not None:
            return Attention(node, softmax, misfit=Reason.TWO_MASKS(first=value.name, second=mask.name))
        inner.append(value)
        scores, fill = filling
        filled, value = value, _skip(scores, inner, facts)
        if value is not None and computed_by(value) == "add":
            return Attention(node, softmax, misfit=Reason.TWO_MASKS(first=filled.name, second=value.name))
    scale: float | Node = 1.0
    divides = False
    if value is not None and (found := _scaling(value, facts)) is not None:
        inner.append(value)
        scores, scale, divides = found
        value = _skip(scores, inner, facts)
    first = None if value is None else as_product(value)
    if first is None:
        read = _input(softmax) if value is None else value
        if isinstance(read, Node) and (called := operator_of(read)) is not None and called.writes_first:
            return Attention(node, softmax, misfit=Reason.WRITTEN_IN_PLACE(value=_input(read)))
        return Attention(node, softmax, misfit=Reason.NOT_SCALED_PRODUCT(value=getattr(read, "name", read)))
    inner += [first.node, *first.inner]
    if not isinstance(scale, Node) and not (math.isfinite(scale) and scale > 0):
        return Attention(node, softmax, misfit=Reason.SCALE(scale=scale))
    return Attention(
        node,
        softmax,
        tuple(inner),
        scores=first.node,
        query=first.left,
        keys=first.right,
        values=product.right,
        mask=mask,
        fill=fill,
        scale=scale,
        divides=divides,
        largest=_largest(mask, fill, facts),
        keeps_a_key=mask is not None and _is_finite_first(mask, facts),
        asserted=dtype_checks(node, inner),
        is_written=facts.writes.is_written(node),
    )


def _largest(mask: Node | None, fill: Fill | None, facts: GraphFacts) -> float:
    """Return a bound of the absolute values that are added to scores."""
    if fill is not None:
        return 0.0 if fill.keeps_a_column else abs(fill.number)
    return 0.0 if mask is None else largest_magnitude(mask, facts)


def _is_finite_first(mask: Node, facts: GraphFacts) -> bool:
    column = first_column(mask, facts)
    return column is not None and bool(column.values.isfinite().all())


def _mask_of(attention: Attention, fill: Fill, edit: Editor) -> Node:
    """Write what the function is to add or to exclude where the model fills scores."""
    node, meta, dtype = attention.node, place_of(attention.node), known_dtype(attention.node)

    def insert(target: Any, args: tuple[Any, ...], ending: str, **kwargs: Any) -> Node:
        name = f"{node.name}_{ending}"
        return edit.insert_before(node, "call_function", target, args, kwargs, name=name, meta=meta)

    where = fill.where
    if fill.keeps_a_column:
        if fill.kept is not None:
            edit.note_sources(fill.kept.readings)
        return where if fill.keeps else insert(_of(node, torch.logical_not), (where,), "keys")
    if fill.keeps:
        where = insert(_of(node, torch.logical_not), (where,), "without")
    zeros = insert(_of(node, torch.zeros_like), (where,), "zeros", dtype=dtype)
    return insert(
        _ATEN.masked_fill.Scalar if is_aten(node) else torch.masked_fill, (zeros, where, fill.number), "mask"
    )


def _of(node: Node, function: Any) -> Any:
    """Return a function as other nodes of the graph are written."""
    return getattr(_ATEN, function.__name__).default if is_aten(node) else function


def _transposition(node: Node, keys: Node) -> tuple[str, Target, tuple[Any, ...]]:
    if is_aten(node):
        return "call_function", _ATEN.transpose.int, (keys, -1, -2)
    return "call_method", "transpose", (keys, -1, -2)


def _skip(value: Any, inner: list[Node], facts: GraphFacts) -> Node | None:
    """Skip casts, copies and inactive dropouts, and note them."""
    while isinstance(value, Node):
        module = facts.module(value)
        is_dropout = isinstance(module, DROPOUT_MODULES) or is_dropout_call(value)
        if is_dropout and why_no_identity(Identity(value, module), facts):
            return None
        if not is_dropout and not is_cast(value) and value.target is not _ATEN.clone.default:
            return value
        inner.append(value)
        value = _input(value)
    return None


def _input(node: Node) -> Any:
    return node.args[0] if node.args else node.kwargs.get("input")


def _is_softmax(node: Node, facts: GraphFacts) -> bool:
    if node.op == "call_module":
        return isinstance(facts.module(node), nn.Softmax)
    return computed_by(node) in _SOFTMAXES


def _why_other_softmax(node: Node, facts: GraphFacts) -> Refusal | None:
    """Return why a softmax is not one of the last dimension; ``None`` if it is."""
    module = facts.module(node)
    if isinstance(module, nn.Softmax):
        dim: Any = module.dim
        if reason := why_not_plain(module, nn.Softmax) or why_hooked(facts, module):
            return reason
    else:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    shape = known_shape(node)
    if shape is None:
        return Reason.UNKNOWN_SHAPE(value=node.name)
    return None if dim in (-1, len(shape) - 1) else Reason.SOFTMAX_DIMENSION(dimension=dim)


def _scores_and_mask(add: Node, facts: GraphFacts) -> tuple[Any, Node | None]:
    """Tell which summand is the mask: the one that is not made of a product."""
    for scores, mask in (add.args, add.args[::-1]):
        if isinstance(scores, Node) and isinstance(mask, Node) and _is_scores(scores, facts):
            return scores, mask
    return None, None


def _why_no_mask(add: Node, facts: GraphFacts) -> Refusal:
    for value in add.args:
        filling = as_fill(value, facts) if isinstance(value, Node) else None
        if filling is not None and isinstance(filling[0], Node) and _is_scores(filling[0], facts):
            return Reason.TWO_MASKS(first=value, second=add.name)
    return Reason.NO_MASK(value=add.name)


def _is_scores(node: Node, facts: GraphFacts) -> bool:
    while is_cast(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    scaling = _scaling(node, facts)
    scores = node if scaling is None else scaling[0]
    while is_cast(scores) and isinstance(scores.args[0], Node):
        scores = scores.args[0]
    return as_product(scores) is not None


def _scaling(node: Node, facts: GraphFacts) -> tuple[Node, float | Node, bool] | None:
    """Return what a node scales by a positive number, the number, and whether it divides by that."""
    name = computed_by(node)
    if name not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if name == "mul" and (type(first) in (int, float) or first in facts.numbers):
        first, second = second, first
    if not isinstance(first, Node):
        return None
    if isinstance(second, Node):
        return (first, second, name == "div") if is_positive(second, facts) else None
    if type(second) not in (int, float):
        return None
    number = float(second)  # type: ignore[arg-type]
    if name == "mul":
        return first, number, False
    return first, 1 / number if number else math.inf, False


def _scale_of(attention: Attention, edit: Editor) -> float | Node:
    """Return the factor that scores are multiplied by, computed from the divisor where there is one."""
    if not attention.divides:
        return attention.scale
    node = attention.node
    args = (1.0, attention.scale)
    name = f"{node.name}_scale"
    return edit.insert_before(node, "call_function", operator.truediv, args, name=name, meta=place_of(node))


def _why_other_state(attention: Attention, facts: GraphFacts) -> Refusal | None:
    """Return why what is read may have changed when the last product is computed; ``None`` if it has not."""
    where = None if attention.fill is None else attention.fill.where
    read = (attention.query, attention.keys, attention.values, attention.mask, where)
    readers = first_readers(read, (*attention.inner, attention.node))
    if attention.keys is not None and (plain := transposed(attention.keys)) is not None:
        readers[plain] = attention.keys
    return why_not_the_same(readers, attention.node, facts.writes)


def _why_dtypes_differ(attention: Attention) -> Refusal | None:
    read = [attention.query, attention.keys, attention.values, attention.mask]
    known = {value: known_dtype(value) for value in read if value is not None}
    for value, dtype in known.items():
        if dtype is None:
            return Reason.UNKNOWN_DTYPE(value=value.name)
    if reason := why_mixed_dtypes(known.values()):
        return reason
    (dtype,) = set(known.values())
    if dtype not in _DTYPES:
        return Reason.DTYPE(value="it", dtype=dtype_name(dtype))
    for value in (*attention.inner, attention.node):
        inner = known_dtype(value)
        if inner is None or inner not in _DTYPES or torch.finfo(inner).eps > torch.finfo(dtype).eps:
            return Reason.DTYPE(value=value.name, dtype=dtype_name(inner))
    result = known_dtype(attention.node)
    return None if result == dtype else Reason.DTYPE(value=attention.node.name, dtype=dtype_name(result))


def _why_shapes_differ(attention: Attention) -> Refusal | None:
    shapes = [
        None if value is None else known_shape(value)
        for value in (attention.query, attention.keys, attention.values)
    ]
    query, keys, values = shapes
    if query is None or keys is None or values is None:
        return Reason.UNKNOWN_SHAPE(value="query, keys or values")
    if not len(query) == len(keys) == len(values) or len(query) not in (3, 4):
        dimensions = ", ".join(str(len(shape)) for shape in (query, keys, values))
        return Reason.DIMENSIONS(value="query, keys, values", count=dimensions, supported="3 or 4 in all")
    pairs = [
        *zip(query[:-2], keys[:-2], strict=True),
        *zip(query[:-2], values[:-2], strict=True),
        (query[-1], keys[-2]),
        (keys[-1], values[-2]),
    ]
    if not all(_is_same(a, b) for a, b in pairs):
        return Reason.UNEQUAL_SHAPES()
    return None


def _why_mask_differs(attention: Attention) -> Refusal | None:
    added = attention.mask if attention.fill is None else attention.fill.where
    if added is None or attention.scores is None:
        return None
    mask, scores = known_shape(added), known_shape(attention.scores)
    if mask is None or scores is None:
        return Reason.UNKNOWN_SHAPE(value="the mask")
    if not 2 <= len(mask) <= len(scores):
        return Reason.DIMENSIONS(value="the mask", count=len(mask), supported=f"2 to {len(scores)}")
    if not all(_is_same(a, 1) or _is_same(a, b) for a, b in zip(mask[::-1], scores[::-1], strict=False)):
        return Reason.LARGER_MASK()
    if attention.fill is not None:
        return _why_fill_differs(attention, attention.fill)
    dtype = known_dtype(added)
    limit = torch.finfo(torch.float32 if dtype is None else dtype).max
    if dtype == torch.float16:
        limit /= 2  # with a score, the smallest number would be infinite
    if attention.largest > limit and not attention.keeps_a_key:
        return Reason.INFINITE_MASK()
    return None


def _why_fill_differs(attention: Attention, fill: Fill) -> Refusal | None:
    """Return why scores that are filled are not those that a number is added to; ``None`` if they are.

    To the smallest number of a dtype, a score adds nothing; half precision is none that scores are far from.
    """
    dtype, condition = known_dtype(attention.node), known_dtype(fill.where)
    if condition is None:
        return Reason.UNKNOWN_DTYPE(value=fill.where.name)
    if condition != torch.bool:
        return Reason.DTYPE(value=fill.where.name, dtype=dtype_name(condition))
    if math.isnan(fill.number):
        return Reason.FILL(number="what is not known")
    if fill.number == -math.inf:
        return None if fill.keeps_a_column else Reason.INFINITE_MASK()
    is_lowest = dtype is not None and dtype != torch.float16 and fill.number == torch.finfo(dtype).min
    return None if is_lowest else Reason.FILL(number=fill.number)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a is b or statically_known_true(a == b))
