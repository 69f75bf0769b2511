"""Compute attention that is written as products and a softmax by one function."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.fx import Node
from torch.nn import functional

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators import computed_by, is_aten
from fxlab.operators.node_info import dtype_name, known_shape
from fxlab.transformations.analysis import aliasing_and_writes
from fxlab.transformations.analysis.dtypes_and_sizes import is_cast, is_same_size, known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import dropout_class
from fxlab.transformations.analysis.strides import layout_matters
from fxlab.transformations.analysis.value_bounds import is_positive, largest_magnitude
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.calls.term import Term
from fxlab.transformations.patterns.fusing_pass import why_dtypes_differ
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import either
from fxlab.transformations.rewriting.autocast import refuse_autocast
from fxlab.transformations.rewriting.dialects import contiguous_call
from fxlab.transformations.rewriting.dtype_checks import dtype_checks, move_dtype_checks
from fxlab.transformations.rewriting.editor import Editor, insert_call
from fxlab.transformations.views.mask import Fill, as_fill, first_column

_ATEN = torch.ops.aten
_PRODUCTS = frozenset({"matmul", "bmm"})
_LARGEST_UNDER_AUTOCAST = torch.finfo(torch.float16).max
"""The largest number of the smallest dtype in which autocast may compute."""
_LARGEST_IN_KERNELS = torch.finfo(torch.float32).max / 2


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
    """The nodes between the inputs and ``node``, last first."""
    scores: Node | None = None
    """The first product, which is among them."""
    query: Node | None = None
    keys: Node | None = None
    """Transposed, as the first product reads them."""
    plain_keys: Node | None = None
    """The value that a node of the graph transposes to them, if one does."""
    values: Node | None = None
    mask: Node | None = None
    fill: Fill | None = None
    """The value that replaces scores, if no mask is added to them."""
    scale: float | Node = 1.0
    divides: bool = False
    """Whether scores are divided by the scale, which is then computed from sizes."""
    largest: float = 0.0
    """A bound of the absolute values in the mask."""
    keeps_a_key: bool = False
    """Whether the mask is known to be finite for the first key of each query."""
    asserted: tuple[Node, ...] = ()
    """Nodes that check the dtype of values in between."""
    is_written: bool = False
    """Whether the product with the values is written in place, so that views of it must stay views."""
    misfit: Refusal | None = field(default=None, compare=False)
    """Why it cannot be fused, if something else stands between."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The softmax, which would go."""
        return (self.softmax,)

    @property
    def given(self) -> tuple[Node, ...]:
        """The tensors that the function would be given, and its result."""
        read = (self.query, self.keys, self.values, self.mask, self.node)
        return tuple(each for each in read if each is not None)

    @property
    def may_overflow(self) -> bool:
        """Whether a kernel may take the mask for infinite, as it multiplies scores by ``log2(e)``."""
        return self.mask is not None and not self.keeps_a_key and self.largest > _LARGEST_IN_KERNELS

    @property
    def is_infinite_under_autocast(self) -> bool:
        """Whether the mask may be infinite in the dtype of autocast, which casts the function's inputs."""
        added = self.mask if self.fill is None or self.fill.keeps_a_column else self.node
        is_cast = added is not None and known_dtype(added) != torch.float64
        return is_cast and self.largest > _LARGEST_UNDER_AUTOCAST / 2


@dataclass(frozen=True)
class FuseAttention(MatchingPass[Attention]):
    """Compute attention by ``scaled_dot_product_attention``, which never stores all probabilities.

    It fuses ``softmax(query @ keys.T * scale + mask) @ values``; the mask, the scale, a softmax in single
    precision and an inactive dropout are optional. The result is equal up to rounding: half precision is not
    rounded in between. Kernels of accelerators take the smallest number of a dtype for infinite, so a mask is
    bounded by half of it. A mask must be known to be finite, because if it excludes every key with an
    infinity, the probabilities are NaN, and those of the function are zero; or it must leave each query its
    first key, as causal masks of constants do. Scores may also be filled, by ``masked_fill`` or ``where``:
    with minus infinity if each query keeps its first key, or with the smallest number of their dtype. Scores
    may reach other numbers, such as -1e9. If a filled score is not finite itself, the model excludes it, and
    the function gives NaN. Autocast would make a mask of the smallest number of a dtype infinite, so a graph
    that adds one refuses to run under it. Shapes and dtypes must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``. The last product is marked.

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
    around: ClassVar = frozenset({"softmax", "_softmax"})

    def match(self, facts: GraphFacts) -> Iterator[Attention]:
        """Yield the products with the result of a softmax."""
        index = GraphIndex(facts)
        for node in index.position:
            if computed_by(node) in _PRODUCTS or _views_product(node):
                term = index.calls.term(node)
                found = None if term is None or term.name != "matmul" else _read(node, term, index)
                if found is not None:
                    yield found

    def refuse(self, candidate: Attention, facts: GraphFacts) -> Refusal | None:
        """Refuse other readers, writes in between, and computations that the function does otherwise."""
        if candidate.misfit:
            return candidate.misfit
        own = {candidate.node, *candidate.inner, *candidate.asserted}
        return (
            aliasing_and_writes.why_of_use_elsewhere(candidate.inner, own, facts.writes)
            or _why_other_state(candidate, facts)
            or why_dtypes_differ(candidate.given, candidate.inner)
            or _why_shapes_differ(candidate)
            or _why_mask_differs(candidate)
        )

    def behaves_by_mode(self, candidate: Attention, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the calls of dropout modules."""
        return tuple(node for node in candidate.inner if dropout_class(facts.module(node)))

    def describe(self, candidate: Attention) -> str:
        """Name the product that becomes the attention."""
        return f"{candidate.node.name} becomes scaled_dot_product_attention"

    def rewrite(self, candidate: Attention, edit: Editor) -> Node:
        """Replace the last product by the attention, and erase the nodes that only it used."""
        node, keys = candidate.node, candidate.keys
        assert keys is not None
        plain_keys = candidate.plain_keys
        erased = list(candidate.inner)
        if plain_keys is None:
            transpose: Any = _ATEN.transpose.int if is_aten(node) else torch.transpose
            plain_keys = insert_call(edit, node, "keys", transpose, (keys, -1, -2))
        elif len(keys.users) == 1:
            erased.append(keys)
        args = (candidate.query, plain_keys, candidate.values)
        mask = (
            _bounded(candidate, edit) if candidate.fill is None else _mask_of(candidate, candidate.fill, edit)
        )
        kwargs = {"attn_mask": mask, "dropout_p": 0.0, "scale": _scale_of(candidate, edit)}
        function: Any = functional.scaled_dot_product_attention
        if is_aten(node):
            function = _ATEN.scaled_dot_product_attention.default
        if candidate.is_infinite_under_autocast:
            refuse_autocast(node, edit)
        if candidate.is_written or layout_matters(node, edit.graph_module):
            fused = insert_call(edit, node, "attention", function, args, kwargs)
            op, target, read, settings = contiguous_call(node, fused)
            edit.change(node, op=op, target=target, args=read, kwargs=settings)
        else:
            edit.change(node, op="call_function", target=function, args=args, kwargs=kwargs)
        move_dtype_checks(candidate.asserted, node, edit)
        for value in sorted(erased, reverse=True):
            edit.erase(value)
        return node


def _read(node: Node, product: Term, index: GraphIndex) -> Attention | None:
    """Follow the probabilities of a product back to their own product."""
    facts, inner = index.facts, list(product.nodes[1:])
    softmax = _skip(product.args["self"], inner, index)
    term = index.calls.term(softmax)
    if term is None or term.name != "softmax":
        return None
    inner.append(softmax)
    if term.rank is None:
        return Attention(node, softmax, misfit=Reason.UNKNOWN_SHAPE(value=softmax.name))
    if (dim := term.args.get("dim")) not in (-1, term.rank - 1):
        return Attention(node, softmax, misfit=Reason.SOFTMAX_DIMENSION(dimension=dim))
    value = _skip(term.args["self"], inner, index)
    mask: Node | None = None
    term = index.calls.term(value)
    if term is not None and term.name == "add" and not term.is_write:
        pairs = (term.args["terms"], term.args["terms"][::-1])
        added = [pair for pair in pairs if isinstance(pair[1], Node) and _scaled(pair[0], index)]
        if not added:
            return Attention(node, softmax, misfit=Reason.NO_MASK(value=value.name))
        inner.append(value)
        value, mask = added[0]
    fill: Fill | None = None
    if isinstance(value, Node) and (filling := as_fill(value, facts)) is not None:
        inner.append(value)
        value, fill = filling
    first = _scaled(value, index)
    if first is None:
        name = getattr(value, "name", value)
        return Attention(node, softmax, misfit=Reason.NOT_SCALED_PRODUCT(value=name))
    if not isinstance(first.scale, Node) and not (math.isfinite(first.scale) and first.scale > 0):
        return Attention(node, softmax, misfit=Reason.SCALE(scale=first.scale))
    inner += first.nodes
    keys = first.product.args["other"]
    column = None if mask is None else first_column(mask, facts)
    return Attention(
        node,
        softmax,
        tuple(inner),
        scores=first.product.nodes[0],
        query=first.product.args["self"],
        keys=keys,
        plain_keys=_transposed(keys, index),
        values=product.args["other"],
        mask=mask,
        fill=fill,
        scale=first.scale,
        divides=first.divides,
        largest=_largest(mask, fill, facts),
        keeps_a_key=column is not None and bool(column.isfinite().all()),
        asserted=dtype_checks(node, inner),
        is_written=facts.writes.is_written(node),
    )


@dataclass(frozen=True)
class _Scaled:
    """A product that a number may scale."""

    product: Term
    nodes: tuple[Node, ...]
    """The nodes that compute it, last first."""
    scale: float | Node = 1.0
    divides: bool = False


def _scaled(value: Any, index: GraphIndex) -> _Scaled | None:
    """Return the product, perhaps scaled by a positive number, that a value is; ``None`` for others."""
    inner = list[Node]()
    node = _skip(value, inner, index)
    term = index.calls.term(node)
    scale: Any = 1.0
    divides = False
    if term is not None and term.name == "mul" and not term.is_write:
        first, scale = term.args["terms"]
        if not isinstance(first, Node) or first in index.facts.numbers:
            first, scale = scale, first
        if divides := isinstance(scale, Term):
            scale = node.args[1] if len(node.args) > 1 else node.kwargs.get("other")
        if isinstance(scale, Node) and not is_positive(scale, index.facts):
            return None
        inner.append(node)
        term = index.calls.term(_skip(first, inner, index))
    if term is None or term.name != "matmul" or not all(isinstance(v, Node) for v in term.args.values()):
        return None
    return _Scaled(term, (*inner, *term.nodes), scale if isinstance(scale, Node) else float(scale), divides)


def _skip(value: Any, inner: list[Node], index: GraphIndex) -> Any:
    """Skip casts, copies and inactive dropouts, and note them."""
    while (term := index.calls.term(value)) is not None and not term.is_write:
        if term.name == "detach" or not (term.is_transparent or is_cast(value)):
            break
        inner.append(value)
        value = term.args["self"]
    return value


def _transposed(keys: Node, index: GraphIndex) -> Node | None:
    """Return the value of which a node transposes the last two dimensions; ``None`` if it does not."""
    term = index.calls.term(keys)
    if term is None or term.name != "permute":
        return None
    *first, last, other = term.args["dims"]
    count = len(first)
    value = term.args["self"] if [*first, other, last] == [*range(count + 2)] else None
    return value if isinstance(value, Node) else None


def _views_product(node: Node) -> bool:
    """Tell whether a node may be the last view of a decomposed product of batches."""
    viewed = node.args[0] if node.target is _ATEN.view.default else None
    return isinstance(viewed, Node) and viewed.target is _ATEN.bmm.default


def _largest(mask: Node | None, fill: Fill | None, facts: GraphFacts) -> float:
    """Return a bound of the absolute values that are added to scores."""
    if fill is not None:
        return 0.0 if fill.keeps_a_column else abs(fill.number)
    return 0.0 if mask is None else largest_magnitude(mask, facts)


def _mask_of(attention: Attention, fill: Fill, edit: Editor) -> Node:
    """Write the mask to add or to exclude by if the model fills scores."""
    node, where = attention.node, fill.where
    if fill.keeps_a_column:
        return (
            where if fill.keeps else insert_call(edit, node, "keys", _of(node, torch.logical_not), (where,))
        )
    if fill.keeps:
        where = insert_call(edit, node, "without", _of(node, torch.logical_not), (where,))
    dtype: Any = known_dtype(node)
    zeros = insert_call(edit, node, "zeros", _of(node, torch.zeros_like), (where,), {"dtype": dtype})
    fill_in = _ATEN.masked_fill.Scalar if is_aten(node) else torch.masked_fill
    return insert_call(edit, node, "mask", fill_in, (zeros, where, fill.number / 2))


def _bounded(attention: Attention, edit: Editor) -> Node | None:
    """Return the mask, bounded below by half of the smallest number, to which a score adds nothing."""
    node, mask = attention.node, attention.mask
    if mask is None or not attention.may_overflow:
        return mask
    target = _ATEN.clamp.default if is_aten(node) else torch.clamp
    args = mask, torch.finfo(known_dtype(mask) or torch.float32).min / 2
    made = (user for user in mask.users if (user.target, user.args) == (target, args))
    return next(made, None) or insert_call(edit, node, "mask", target, args)


def _of(node: Node, function: Any) -> Any:
    """Return a function in the dialect of the graph."""
    return getattr(_ATEN, function.__name__).default if is_aten(node) else function


def _scale_of(attention: Attention, edit: Editor) -> float | Node:
    """Return the factor of the scores, computed from the divisor if there is one."""
    if not attention.divides:
        return attention.scale
    return insert_call(edit, attention.node, "scale", operator.truediv, (1.0, attention.scale))


def _why_other_state(attention: Attention, facts: GraphFacts) -> Refusal | None:
    """Return why inputs may have changed when the last product is computed; ``None`` if they have not."""
    where = None if attention.fill is None else attention.fill.where
    read = (attention.query, attention.keys, attention.values, attention.mask, where)
    readers = aliasing_and_writes.first_readers(read, (*attention.inner, attention.node))
    if attention.keys is not None and attention.plain_keys is not None:
        readers[attention.plain_keys] = attention.keys
    return aliasing_and_writes.why_not_the_same(readers, attention.node, facts.writes)


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
    if not all(is_same_size(a, b) for a, b in pairs):
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
    if not all(
        is_same_size(a, 1) or is_same_size(a, b) for a, b in zip(mask[::-1], scores[::-1], strict=False)
    ):
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
    """Return why filling scores differs from adding a number to them; ``None`` if it does not.

    A score adds nothing to the smallest number of a dtype, except in half precision, which scores may reach.
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
