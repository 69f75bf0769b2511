"""The inputs of a session as shapes, noted for its plain graph and for copies of that."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.base.torch_private import FakeTensorMode, pytree

NOTED: weakref.WeakKeyDictionary[GraphModule, tuple[Any, Any, dict[Node, Any]]]
NOTED = weakref.WeakKeyDictionary()
"""The mode of the fake inputs of a graph, these, and the fake values of its nodes, once asked for."""


def note_inputs(graph_module: GraphModule, arguments: tuple[Any, ...]) -> None:
    """Note the shapes of the values of a graph's placeholders; the graph itself does not change.

    They are no facts of the graph, which holds for others, so passes do not rely on them.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    NOTED[graph_module] = mode, pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments), {}


def note_copy(copied: GraphModule, graph_module: GraphModule) -> None:
    """Note for a copy what is known of the inputs of a graph."""
    if graph_module in NOTED:
        NOTED[copied] = *NOTED[graph_module][:2], {}
