"""Permutations of dimensions."""

from typing import Any

import torch
from torch.fx import Node

from fxlab.transformations.views.layer import computed_by


def permutation(node: Node) -> list[int] | None:
    """Return which dimension of its input each dimension of a node is; ``None`` if it permutes none.

    The number of dimensions is the one that the graph was made for (``meta["val"]``).

    Examples
    --------
    >>> import fxlab
    >>> class Swap(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.transpose(0, -1)
    >>> traced = fxlab.symbolic_trace(Swap(), (torch.ones(2, 3, 4),))
    >>> [permutation(node) for node in traced.graph.nodes if node.op == "call_method"]
    [[2, 1, 0]]
    """
    value, name = node.meta.get("val"), computed_by(node)
    if not isinstance(value, torch.Tensor) or name not in ("permute", "transpose", "t"):
        return None
    count = value.dim()
    order = list(range(count))
    if name == "t":
        return order[::-1]
    given: list[Any] = [*node.args[1:], *node.kwargs.values()]
    dims = [*given[0]] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    if not count or not all(type(dim) is int for dim in dims):
        return None
    dims = [dim % count for dim in dims]
    if name == "permute":
        return dims
    if len(dims) != 2:
        return None
    first, second = dims
    order[first], order[second] = second, first
    return order
