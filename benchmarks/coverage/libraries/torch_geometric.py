"""Torch-geometric's models, and kinds of layers and pooling in a small network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as g

from benchmarks.coverage.libraries.rows import Row, Values

_GRAPH = {"x": Values(("nodes", 8)), "edge_index": Values((2, "edges"), below="nodes")}
_SIZES = {"nodes": 10, "edges": 24}
_BATCH = Values(("nodes",), below=2, ascending=True)
_MODELS = ("GCN", "GraphSAGE", "GAT", "GIN", "PNA", "EdgeCNN")
_OPTIONS: dict[str, dict[str, Any]] = {
    "GAT": {"heads": 2},
    "PNA": {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.tensor([1, 4, 3, 2])},
}
_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "APPNP": lambda: g.APPNP(K=2, alpha=0.1),
    "ARMAConv": lambda: g.ARMAConv(8, 8),
    "ChebConv": lambda: g.ChebConv(8, 8, K=2),
    "ClusterGCNConv": lambda: g.ClusterGCNConv(8, 8),
    "EGConv": lambda: g.EGConv(8, 8, num_heads=2),
    "FiLMConv": lambda: g.FiLMConv(8, 8),
    "GATv2Conv": lambda: g.GATv2Conv(8, 8),
    "GatedGraphConv": lambda: g.GatedGraphConv(8, 2),
    "GeneralConv": lambda: g.GeneralConv(8, 8),
    "GENConv": lambda: g.GENConv(8, 8),
    "GraphConv": lambda: g.GraphConv(8, 8),
    "LEConv": lambda: g.LEConv(8, 8),
    "MFConv": lambda: g.MFConv(8, 8),
    "ResGatedGraphConv": lambda: g.ResGatedGraphConv(8, 8),
    "SGConv": lambda: g.SGConv(8, 8, K=2),
    "SuperGATConv": lambda: g.SuperGATConv(8, 8),
    "TAGConv": lambda: g.TAGConv(8, 8),
    "TransformerConv": lambda: g.TransformerConv(8, 8, heads=2),
}


class _Pooled(nn.Module):
    """Two layers, a value for each graph of a batch, and a classifier."""

    def __init__(self, pool: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.head = g.GCNConv(8, 8), g.GCNConv(8, 8), nn.Linear(8, 3)
        self.pool = pool

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edge_index).relu()
        return self.head(self.pool(self.second(x, edge_index), batch))


def _model(name: str) -> nn.Module:
    return getattr(g, name)(8, 16, num_layers=2, out_channels=4, **_OPTIONS.get(name, {}))


ROWS = [
    *(Row(name, partial(_model, name), _GRAPH, _SIZES) for name in _MODELS),
    *(Row(name, layer, _GRAPH, _SIZES) for name, layer in _LAYERS.items()),
    *(
        Row(f"GCN and {pool.__name__}", partial(_Pooled, pool), {**_GRAPH, "batch": _BATCH}, _SIZES)
        for pool in (g.global_mean_pool, g.global_max_pool, g.global_add_pool)
    ),
    Row("MLP", lambda: g.MLP([8, 16, 4]), {"x": Values(("nodes", 8))}, {"nodes": 10}),
    Row("GraphUNet", lambda: g.GraphUNet(8, 16, 4, depth=2), _GRAPH, _SIZES),
    Row(
        "AttentiveFP",
        lambda: g.AttentiveFP(8, 16, 4, edge_dim=3, num_layers=2, num_timesteps=2),
        {**_GRAPH, "edge_attr": Values(("edges", 3)), "batch": _BATCH},
        _SIZES,
    ),
    Row(
        "FAConv",
        lambda: g.FAConv(8),
        {"x": Values(("nodes", 8)), "x_0": Values(("nodes", 8)), "edge_index": _GRAPH["edge_index"]},
        _SIZES,
    ),
    Row(
        "RGCNConv",
        lambda: g.RGCNConv(8, 8, num_relations=3),
        {**_GRAPH, "edge_type": Values(("edges",), below=3)},
        _SIZES,
    ),
    Row(
        "LightGCN",
        lambda: g.LightGCN(num_nodes=10, embedding_dim=8, num_layers=2),
        {"edge_index": Values((2, "edges"), below=10)},
        {"edges": 24},
    ),
]
