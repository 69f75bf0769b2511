"""Views and casts that change nothing, alone or together with the one before."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators import computed_by, told_dtype
from fxlab.transformations.analysis.dtypes_and_sizes import are_same_sizes, is_cast
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.calls import Calls
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

_RESHAPES = frozenset({"view", "unsqueeze", "squeeze", "alias"})
"""Views that show all elements in their order; they never copy."""
_SHOW_ALL = _RESHAPES | {"reshape", "expand", "slice"}
"""Calls that return a view of all elements if the shape stays."""


@dataclass(frozen=True)
class RedundantView:
    """A call that shows its input unchanged, or that could show an earlier tensor directly."""

    node: Node
    source: Node
    """The value that could be read instead."""
    inner: tuple[Node, ...]
    """Views between the two, last first."""
    is_whole: bool
    """Whether the source is read instead of the call; otherwise the call reads it."""


@dataclass(frozen=True)
class RemoveRedundantViews(RewritePass[RedundantView]):
    """Remove views and casts that change nothing: their users read the input directly.

    That is ``view``, ``reshape``, ``expand`` or a slice to the present shape, a view back to it, two
    transpositions that undo each other, and a cast to the dtype that a cast has just made. A view of a view
    reads the source of the first one. Exported and decomposed graphs are full of them: each product of
    batches comes with two. Results are bit-identical; a call without Python takes a microsecond, so graphs
    become shorter rather than faster. Other passes recognise attention by such views, so this one comes last.
    Shapes must be those that the graph was made for, as those of ``fxlab.symbolic_trace`` and
    ``torch.export`` are; ``ShapeProp`` does not promise that. Nodes that now read another node are marked.

    Examples
    --------
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.transpose(1, 2).transpose(2, 1).relu()
    >>> import fxlab
    >>> remove = RemoveRedundantViews()
    >>> removed = remove(fxlab.symbolic_trace(Twice(), (torch.ones(2, 3, 4),)))
    >>> [node.name for node in removed.graph.nodes]
    ['x', 'relu', 'output']
    >>> [node.name for node in remove(removed, reverse=True).graph.nodes]
    ['x', 'transpose', 'transpose_1', 'relu', 'output']
    """

    def match(self, facts: GraphFacts) -> Iterator[RedundantView]:
        """Yield the calls that change nothing."""
        for node in list(facts.graph_module.graph.nodes):
            if (found := _redundant(node)) is not None:
                yield found

    def refuse(self, candidate: RedundantView, facts: GraphFacts) -> Refusal | None:
        """Refuse values that are written or returned, and casts that are redundant only without autocast."""
        node, writes = candidate.node, facts.writes
        if writes.changes_state:
            return Reason.MODE_CHANGES()
        for value in (node, candidate.source):
            if writes.is_written(value):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        if not candidate.is_whole:
            (inner,) = candidate.inner
            return Reason.OTHER_USERS(value=inner.name) if len(inner.users) > 1 else None
        if not node.users:
            return Reason.UNUSED()
        if any(user.op == "output" for user in node.users):
            return Reason.RETURNED()
        if is_cast(node) and told_dtype(candidate.source) is None:
            return Reason.AUTOCAST_DTYPE()
        return None

    def describe(self, candidate: RedundantView) -> str:
        """Name the value that is read instead."""
        source = candidate.source.name
        return f"removed; {source} is read instead" if candidate.is_whole else f"reads {source} itself"

    def rewrite(self, candidate: RedundantView, edit: Editor) -> Node | tuple[Node, ...]:
        """Replace the view by its source."""
        node, source = candidate.node, candidate.source
        marked: Node | tuple[Node, ...] = node
        if candidate.is_whole:
            marked = edit.read_instead(node, source)
            edit.erase(node)
        else:
            edit.change(node, args=(source, *node.args[1:]))
        for inner in candidate.inner:
            if not inner.users:
                edit.erase(inner)
        return marked


def _redundant(node: Node) -> RedundantView | None:
    """Return a call that shows its input, or the source of its input, unchanged or by one call."""
    value = _input(node)
    if value is None:
        return None
    name, source = computed_by(node), _input(value)
    dims, before = _permutation(node), _permutation(value)
    if dims == sorted(dims or ()):
        return RedundantView(node, value, (), is_whole=True)
    if dims is not None:
        is_undone = before is not None and [before[dim] for dim in dims] == sorted(dims)
        return RedundantView(node, source, (value,), is_whole=True) if is_undone and source else None
    if (name in _SHOW_ALL or _takes_slices(node) or is_cast(node)) and _is_alike(node, value):
        return RedundantView(node, value, (), is_whole=True)
    inner, below = [value], source
    while name in _RESHAPES and computed_by(inner[-1]) in _RESHAPES and below is not None:
        if _is_alike(node, below):
            return RedundantView(node, below, tuple(inner), is_whole=True)
        inner.append(below)
        below = _input(below)
    if source and name == "view" == computed_by(value) and _is_of_one_dtype(node, value, source):
        return RedundantView(node, source, (value,), is_whole=False)
    return None


def _permutation(node: Node) -> list[int] | None:
    """Return the input dimension for each dimension of a node; ``None`` if it is no permutation."""
    if computed_by(node) not in ("permute", "transpose", "t") or not isinstance(
        node.meta.get("val"), torch.Tensor
    ):
        return None
    term = Calls(lambda module: None).term(node)
    dims = [] if term is None or term.name != "permute" else list(term.args["dims"])
    return dims if dims and all(type(dim) is int for dim in dims) else None


def _takes_slices(node: Node) -> bool:
    """Tell whether a node only takes slices, as ``x[:, 1:]`` does and ``x[0]`` does not."""
    if computed_by(node) != "getitem" or len(node.args) != 2:
        return False
    index = node.args[1]
    items = index if isinstance(index, tuple) else (index,)
    return all(item is ... or isinstance(item, slice) for item in items)


def _input(node: Node) -> Node | None:
    value = node.args[0] if node.args else None
    return value if isinstance(value, Node) and node.op in ("call_function", "call_method") else None


def _is_alike(node: Node, other: Node) -> bool:
    """Tell whether two nodes are known to return tensors of one shape, dtype and device."""
    a, b = (each.meta.get("val") for each in (node, other))
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return (a.dtype, a.device) == (b.dtype, b.device) and are_same_sizes(a.shape, b.shape)


def _is_of_one_dtype(*nodes: Node) -> bool:
    dtypes = {getattr(node.meta.get("val"), "dtype", None) for node in nodes}
    return len(dtypes) == 1 and None not in dtypes
