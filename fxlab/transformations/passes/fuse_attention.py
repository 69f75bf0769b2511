"""Compute attention that is written as products and a softmax by one function."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import Target
from torch.nn import functional

from fxlab.node_info import known_shape
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.autocast import LARGEST
from fxlab.transformations.analysis.dropout import DROPOUT_MODULES, is_dropout_call
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_mixed_dtypes, why_not_plain
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.analysis.same_values import first_readers, why_not_the_same
from fxlab.transformations.analysis.strides import layout_matters
from fxlab.transformations.analysis.value_bounds import largest_magnitude
from fxlab.transformations.passes.remove_identities import Identity, why_no_identity
from fxlab.transformations.rewriting.dialects import contiguous_call
from fxlab.transformations.rewriting.dtype_checks import dtype_checks, move_dtype_checks, refuse_autocast
from fxlab.transformations.rewriting.editor import Editor, place_of
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.casts import is_cast
from fxlab.transformations.views.layer import computed_by, is_aten
from fxlab.transformations.views.product import Product, as_product, transposed

_ATEN = torch.ops.aten
_SOFTMAXES = ("softmax", "_softmax")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    scale: float = 1.0
    largest: float = 0.0
    """A bound of the absolute values in the mask."""
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
        is_cast = self.mask is not None and known_dtype(self.mask) != torch.float64
        return is_cast and self.largest > LARGEST / 2


@dataclass(frozen=True)
class FuseAttention(RewritePass[Attention]):
    """Compute attention by ``scaled_dot_product_attention``, which never stores all probabilities.

    Fused is ``softmax(query @ keys.T * scale + mask) @ values``, with the mask, the scale, a softmax in
    single precision and a dropout that drops nothing as they come. The result is equal up to rounding: half
    precision is not rounded in between. A mask must be known to be finite, because where it excludes every
    key with an infinity, the probabilities are nan, and those of the function are zero. Autocast would make
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
        kwargs = {"attn_mask": candidate.mask, "dropout_p": 0.0, "scale": candidate.scale}
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
        scores, mask = _scores_and_mask(value)
        if mask is None:
            return Attention(node, softmax, misfit=Reason.NO_MASK(value=value.name))
        inner.append(value)
        value = _skip(scores, inner, facts)
    scale = 1.0
    if value is not None and (found := _scaling(value)) is not None:
        inner.append(value)
        scores, scale = found
        value = _skip(scores, inner, facts)
    first = None if value is None else as_product(value)
    if first is None:
        return Attention(node, softmax, misfit=Reason.NOT_SCALED_PRODUCT())
    inner += [first.node, *first.inner]
    if not (math.isfinite(scale) and scale > 0):
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
        scale=scale,
        largest=0.0 if mask is None else largest_magnitude(mask, facts),
        asserted=dtype_checks(node, inner),
        is_written=facts.writes.is_written(node),
    )


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


def _scores_and_mask(add: Node) -> tuple[Any, Node | None]:
    """Tell which summand is the mask: the one that is not made of a product."""
    for scores, mask in (add.args, add.args[::-1]):
        if isinstance(scores, Node) and isinstance(mask, Node) and _is_scores(scores):
            return scores, mask
    return None, None


def _is_scores(node: Node) -> bool:
    while is_cast(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    scaling = _scaling(node)
    scores = node if scaling is None else scaling[0]
    while is_cast(scores) and isinstance(scores.args[0], Node):
        scores = scores.args[0]
    return as_product(scores) is not None


def _scaling(node: Node) -> tuple[Node, float] | None:
    """Return what a node scales by a number, and the number."""
    name = computed_by(node)
    if name not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if name == "mul" and isinstance(second, Node):
        first, second = second, first
    if not isinstance(first, Node) or type(second) not in (int, float):
        return None
    number = float(second)  # type: ignore[arg-type]
    if name == "mul":
        return first, number
    return first, 1 / number if number else math.inf


def _why_other_state(attention: Attention, facts: GraphFacts) -> Refusal | None:
    """Return why what is read may have changed when the last product is computed; ``None`` if it has not."""
    read = (attention.query, attention.keys, attention.values, attention.mask)
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
        return Reason.DTYPE(value="it", dtype=_dtype_name(dtype))
    for value in (*attention.inner, attention.node):
        inner = known_dtype(value)
        if inner is None or inner not in _DTYPES or torch.finfo(inner).eps > torch.finfo(dtype).eps:
            return Reason.DTYPE(value=value.name, dtype=_dtype_name(inner))
    result = known_dtype(attention.node)
    return None if result == dtype else Reason.DTYPE(value=attention.node.name, dtype=_dtype_name(result))


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
    if attention.mask is None or attention.scores is None:
        return None
    mask, scores = known_shape(attention.mask), known_shape(attention.scores)
    if mask is None or scores is None:
        return Reason.UNKNOWN_SHAPE(value="the mask")
    if not 2 <= len(mask) <= len(scores):
        return Reason.DIMENSIONS(value="the mask", count=len(mask), supported=f"2 to {len(scores)}")
    if not all(_is_same(a, 1) or _is_same(a, b) for a, b in zip(mask[::-1], scores[::-1], strict=False)):
        return Reason.LARGER_MASK()
    dtype = known_dtype(attention.mask)
    limit = torch.finfo(torch.float32 if dtype is None else dtype).max
    if dtype == torch.float16:
        limit /= 2  # with a score, the smallest number would be infinite
    if attention.largest > limit:
        return Reason.INFINITE_MASK()
    return None


def _dtype_name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _is_same(a: Any, b: Any) -> bool:
    return bool(a is b or statically_known_true(a == b))
