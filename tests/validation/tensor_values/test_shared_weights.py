"""Statistics of weights are computed once for graphs that share them, and anew after a write."""

import torch
from torch import nn

from fxlab.validation.tensor_values import node_values
from fxlab.validation.tensor_values.node_values import statistics_by_node


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3), requires_grad=False)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        return x + self.weight.t()[:, 0] + self.count


class Writes(Held):
    def forward(self, x):
        self.weight.mul_(2)
        return x + self.weight[0]


def counted(monkeypatch):
    calls, own = [], node_values.statistics_of
    monkeypatch.setattr(node_values, "statistics_of", lambda tensor: calls.append(tensor) or own(tensor))
    return calls


def test_weights_and_views_of_them_are_looked_at_once(monkeypatch):
    graph, known = torch.fx.symbolic_trace(Held()), {}
    alone = statistics_by_node(graph, torch.ones(3))
    first = statistics_by_node(graph, torch.ones(3), known)
    calls = counted(monkeypatch)
    again = statistics_by_node(graph, torch.ones(3), known)
    assert alone == first == again
    # The input, the buffer, which may be written without that being counted, and both sums.
    assert len(calls) == 4
    with torch.no_grad():
        graph.weight.add_(1)
    assert statistics_by_node(graph, torch.ones(3), known)["weight"][0].max == 6


def test_a_graph_that_writes_a_weight_is_told_what_it_has_written():
    writes, known = torch.fx.symbolic_trace(Writes()), {}
    expected = statistics_by_node(writes, torch.ones(3))
    held = torch.fx.symbolic_trace(Held())
    held.weight = writes.weight
    before = statistics_by_node(held, torch.ones(3), known)["weight"][0].max
    assert statistics_by_node(writes, torch.ones(3), known) == expected
    assert statistics_by_node(held, torch.ones(3), known)["weight"][0].max == before == 5
