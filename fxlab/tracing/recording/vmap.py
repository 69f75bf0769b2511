"""Calls of ``torch.vmap`` as nodes: what is mapped is a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.torch_private import pytree
from fxlab.tracing.recording.bodies import RecordedBody
from fxlab.tracing.recording.output_objects import output_argument


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

    Parameters
    ----------
    function
        What ``torch.vmap`` was given.
    in_dims
        Its mapped dimensions, as they were given.
    args
        Its positional arguments.
    """

    has_values = False

    def __init__(self, function: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> None:
        super().__init__()
        self._function = function
        leaves, structure = pytree.tree_flatten(args)
        dims = pytree._broadcast_to_and_flatten(in_dims, structure, is_leaf=lambda d: d is None) or ()
        self._is_mapped = [dim is not None for dim in dims]
        self._in_dims = [dim for dim in dims if dim is not None]
        self.given += [leaf for leaf, is_mapped in zip(leaves, self._is_mapped, strict=True) if is_mapped]

    def run(
        self, bind: Callable[[torch.Tensor, Node], None], node_of: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Return the function to map, which records what the given one does.

        Parameters
        ----------
        bind
            Called with each mapped tensor and its placeholder.
        node_of
            Tensor or symbolic number -> its node in the graph.
        """

        def recorded(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves(args)
            for leaf, is_mapped in zip(leaves, self._is_mapped, strict=True):
                if is_mapped:
                    bind(leaf, self.placeholder("x"))
            result = self._function(*args, **kwargs)
            self.graph.output(output_argument(result, self.graph, node_of))
            return result

        return recorded

    def target(self, out_dims: Any, randomness: str) -> Vmapped:
        """Return the target of the node that calls the graph."""
        dims = (*self._in_dims, *[None] * (len(self.given) - len(self._in_dims)))
        return Vmapped(self.module("Vmapped"), dims, out_dims, randomness)
