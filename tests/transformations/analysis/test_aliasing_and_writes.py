import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.transformations.analysis.graph_analysis import GraphFacts


def somebodys(_value):
    """Do what nobody knows, perhaps write."""


@pytest.mark.parametrize("written", ["x", "wide", "size"])
def test_a_size_is_never_written_and_holds_no_memory(written):
    graph = Graph()
    x = graph.placeholder("x")
    size = graph.call_method("size", (x, 0))
    size.meta["val"] = 3
    wide = graph.call_method("expand", (x, size, 4))
    graph.call_function(somebodys, ({"x": x, "wide": wide, "size": size}[written],))
    graph.output(wide)
    writes = GraphFacts(GraphModule(nn.Module(), graph)).writes
    assert [writes.is_written(node) for node in (x, wide, size)] == [written != "size"] * 2 + [False]


def test_a_list_of_tensors_may_be_written():
    graph = Graph()
    x = graph.placeholder("x")
    parts = graph.call_method("chunk", (x, 2))
    parts.meta["val"] = (torch.ones(1), torch.ones(1))
    graph.call_function(somebodys, (parts,))
    graph.output(x)
    assert GraphFacts(GraphModule(nn.Module(), graph)).writes.is_written(x)
