"""Calls of ``torch.vmap`` as nodes: what is mapped is a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from fxlab.torch_private import pytree
from fxlab.tracing.recording.bodies import RecordedBody


@dataclass(frozen=True, eq=False)
class Vmapped:
    """The target of a node that calls a graph under ``torch.vmap``."""

    graph_module: GraphModule
    """What is mapped; it holds no tensors, what it uses of the model is given to it."""
    in_dims: tuple[int | None, ...]
    """The mapped dimension of each argument."""
    out_dims: Any
    randomness: str

    @property
    def __name__(self) -> str:
        return "vmap"

    def __call__(self, *args: Any) -> Any:
        """Call the graph."""
        mapped = torch.vmap(self.graph_module, self.in_dims, self.out_dims, self.randomness)
        return mapped(*args)


class VmapBody(RecordedBody):
    """The graph of a function that is being mapped.

    ``function``: what ``torch.vmap`` was given. ``in_dims``: its mapped dimensions, as they were given.
    """

    def __init__(self, function: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> None:
        super().__init__(function)
        leaves, structure = pytree.tree_flatten(args)
        self._dims = pytree._broadcast_to_and_flatten(in_dims, structure, is_leaf=lambda d: d is None) or []
        self.given += self.inputs(leaves)

    def inputs(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Return the tensors that are mapped."""
        return [leaf for leaf, dim in zip(leaves, self._dims, strict=False) if dim is not None]

    def target(self, out_dims: Any, randomness: str) -> Vmapped:
        """Return the target of the node that calls the graph."""
        mapped = [dim for dim in self._dims if dim is not None]
        dims = (*mapped, *[None] * (len(self.given) - len(mapped)))
        return Vmapped(self.module("Vmapped"), dims, out_dims, randomness)
