"""Calls of FlexAttention as nodes: the functions that change scores and mask them are graphs of their own."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from fxlab.tracing.recording.torch_calls import AutogradFunction


@dataclass(frozen=True, eq=False)
class FlexAttention:
    """The target of a node that computes FlexAttention.

    ``graphs``: the graphs of ``score_mod`` and ``mask_mod``, where there are any; they hold no tensors,
    values that they use of the model are arguments. ``options``: the arguments that hold no tensors.
    """

    graphs: Mapping[str, GraphModule]
    options: Mapping[str, Any]

    only_reads = True

    @property
    def __name__(self) -> str:
        return "flex_attention"

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        blocks: Mapping[str, Any] | None,
        given: Mapping[str, Sequence[torch.Tensor]],
    ) -> Any:
        """Compute it.

        ``blocks``: the attributes of the block mask. ``given``: other values that the graphs use.
        """
        from torch.nn.attention.flex_attention import BlockMask, flex_attention

        def function(name: str) -> Any:
            graph = self.graphs[name]
            return lambda *numbers: graph(*numbers, *given[name])

        functions = {name: function(name) for name in self.graphs}
        mask = None
        if blocks is not None:
            mask = BlockMask.__new__(BlockMask)
            vars(mask).update(blocks, mask_mod=functions.pop("mask_mod"))
        return flex_attention(query, key, value, block_mask=mask, **functions, **self.options)


def arguments_of(function: str, query: torch.Tensor) -> list[torch.Tensor]:
    """Return arguments for one call of ``score_mod`` or ``mask_mod``, each without a dimension."""
    numbers = [query.new_zeros((), dtype=torch.int32) for _ in range(4)]
    return [query.new_zeros(()), *numbers] if function == "score_mod" else numbers


def indexed_by_tensors(graph: Graph) -> None:
    """Index as the source does: undo the replacement that torch makes while it traces."""
    for node in graph.nodes:
        if isinstance(node.target, AutogradFunction) and node.target.__name__ == "ModIndex":
            tensor, index = node.args
            node.target, node.args = operator.getitem, (tensor, tuple(index))
