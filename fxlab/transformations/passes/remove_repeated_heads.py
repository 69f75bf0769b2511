"""Share heads of keys and values in attention instead of repeating them for each query."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators import argument, computed_by, moves_elements
from fxlab.operators.node_info import dtype_name, known_result, known_shape
from fxlab.transformations.analysis import aliasing_and_writes
from fxlab.transformations.analysis.dtypes_and_sizes import is_same_size, known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex
from fxlab.transformations.patterns.captured import PartialMatch
from fxlab.transformations.patterns.matching import Matcher
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import either, read_once
from fxlab.transformations.rewriting.editor import Editor


def repeated(x: Any, count: int) -> Any:
    """Repeat each of some heads in a row, so that each of several queries has its own."""
    batch, heads, length, size = (x.shape[dim] for dim in range(4))
    wide = x[:, :, None].expand(batch, heads, count, length, size)
    return either(x.repeat_interleave(count, 1), wide.reshape(batch, heads * count, length, size))


def grouped(query: Any, key: Any, value: Any, count: int, mask: Any = None) -> Any:
    """Attend to keys and values with repeated heads."""
    key, value = repeated(key, count), repeated(value, count)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)


@dataclass(frozen=True)
class GroupedAttention:
    """Attention with repeated keys or values."""

    node: Node
    sources: Mapping[Node, Node]
    """The repeated heads, and their sources of shape ``(batch, heads, length, size)``."""
    inner: tuple[Node, ...]
    """The nodes to erase, last first."""


@dataclass(frozen=True)
class RemoveRepeatedHeads(MatchingPass[GroupedAttention]):
    """Let ``scaled_dot_product_attention`` share heads of keys and values instead of copies of them.

    Llama, Mistral, Qwen and others have fewer keys and values than queries (Ainslie et al. 2023), and repeat
    both for each query: copies of the whole cache for each token. With ``enable_gqa=True`` the function reads
    them directly, and returns the same bits. First fuse attention that is written as products by
    :class:`FuseAttention`. On GPUs the pass applies to half precision without a mask, as no other kernel
    there takes fewer keys than queries. Shapes must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. The attention node is marked.

    Examples
    --------
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> class Attention(torch.nn.Module):
    ...     def forward(self, q, k, v):
    ...         k, v = k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
    ...         return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    >>> traced = torch.fx.symbolic_trace(Attention())
    >>> inputs = torch.randn(1, 8, 5, 16), torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16)
    >>> _ = ShapeProp(traced).propagate(*inputs)
    >>> remove = RemoveRepeatedHeads()
    >>> [node.name for node in remove(traced).graph.nodes]
    ['q', 'k', 'v', 'scaled_dot_product_attention', 'output']
    >>> remove.get_transformed_nodes(traced)[0].kwargs
    {'enable_gqa': True}
    """

    looks_for: ClassVar = (grouped,)
    around: ClassVar = frozenset({"scaled_dot_product_attention"})

    def match(self, facts: GraphFacts) -> Iterator[GroupedAttention]:
        """Yield the attentions with repeated keys or values."""
        index = GraphIndex(facts)
        matcher = Matcher(read_once(repeated)[0], index)
        for node in index.position:
            if computed_by(node) != "scaled_dot_product_attention" or argument(node, "enable_gqa"):
                continue
            read = [argument(node, name) for name in ("key", "value")]
            found = matcher.matches(each for each in read if isinstance(each, Node))
            heads = {root: each for (root,), each in found if _only_moves(each)}
            if heads:
                inner = sorted({each for one in heads.values() for each in one.nodes}, reverse=True)
                sources = {root: one.captured["x"] for root, one in heads.items()}
                yield GroupedAttention(node, sources, tuple(inner))

    def refuse(self, candidate: GroupedAttention, facts: GraphFacts) -> Refusal | None:
        """Refuse other readers, writes in between, and shapes for which no kernel would gain."""
        node, own = candidate.node, {candidate.node, *candidate.inner}
        if not _are_repeated_alike(candidate):
            return Reason.NOT_BOTH_REPEATED()
        if reason := aliasing_and_writes.why_of_use_elsewhere(candidate.inner, own, facts.writes):
            return reason
        readers = aliasing_and_writes.first_readers(candidate.sources.values(), own)
        return aliasing_and_writes.why_not_the_same(readers, node, facts.writes) or _why_no_kernel(node)

    def describe(self, candidate: GroupedAttention) -> str:
        """Name the value that is read instead."""
        names = ", ".join(dict.fromkeys(each.name for each in candidate.sources.values()))
        return f"{names} read as they are, without {len(candidate.inner)} nodes that repeat them"

    def rewrite(self, candidate: GroupedAttention, edit: Editor) -> Node:
        """Make the attention read the values before they are repeated."""
        node = candidate.node
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: candidate.sources.get(each, each))
        edit.change(node, args=args, kwargs=kwargs | {"enable_gqa": True})
        for inner in candidate.inner:
            edit.erase(inner)
        return node


def _only_moves(found: PartialMatch) -> bool:
    """Tell whether the nodes seen through are views and copies, and neither dropouts nor detached values."""
    return all(
        (moves_elements(node) and computed_by(node) != "detach") or computed_by(node) == "repeat_interleave"
        for node in found.nodes
    )


def _are_repeated_alike(candidate: GroupedAttention) -> bool:
    """Tell whether keys and values have equally many heads, each repeated for the queries."""
    query, key, value = (argument(candidate.node, name) for name in ("query", "key", "value"))
    if candidate.sources.keys() != {key, value}:
        return False
    sources = list(candidate.sources.values())
    pairs = [(query, key), (query, value), (sources[0], sources[-1])]
    return all(_have_as_many_heads(*pair) for pair in pairs)


def _have_as_many_heads(value: Any, other: Any) -> bool:
    shapes = [known_shape(each) if isinstance(each, Node) else None for each in (value, other)]
    heads = [shape[1] for shape in shapes if shape is not None and len(shape) == 4]
    return len(heads) == 2 and is_same_size(*heads)


def _why_no_kernel(node: Node) -> Refusal | None:
    query: Any = argument(node, "query")
    device, dtype = getattr(known_result(query), "device", None), known_dtype(query)
    is_half = dtype in (torch.float16, torch.bfloat16)
    if device is None or device.type in ("cpu", "meta") or (is_half and argument(node, "attn_mask") is None):
        return None
    return Reason.NO_KERNEL(device=device.type, dtype=dtype_name(dtype))
