"""Casts among the calls of a graph."""

import torch

from fxlab.transformations.calls.casts import is_cast


def test_a_move_to_a_device_is_no_cast():
    graph = torch.fx.symbolic_trace(lambda x: x.float().to("cpu")).graph
    assert [is_cast(node) for node in graph.nodes] == [False, True, False, False]
