"""What each node of a graph costs."""

import copy
import time

import pytest
import torch
from planted import traced
from torch import fx, nn

from fxlab import profile


def test_a_linear_layer_is_counted():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU()))
    start = time.perf_counter()
    table = profile(graph, torch.randn(4, 8), rounds=2)
    assert table["time"].sum() < time.perf_counter() - start
    row = table.loc["_0"]
    assert row["flops"] == 2 * 4 * 8 * 16
    assert row["parameters"] == 8 * 16
    assert row["bytes_in"] == 4 * (4 * 8 + 8 * 16)
    assert row["bytes_out"] == row["peak_memory"] == 4 * 4 * 16
    assert (table["time"] > 0).all()
    assert table["share"].sum() == pytest.approx(1)


def test_attention_is_counted_on_every_device():
    graph, inputs = traced("bert")
    table = profile(graph, inputs, rounds=1)
    attention = table[table["target"].str.contains("scaled_dot_product_attention")]
    batch, length, width = 2, 12, 32
    assert attention["flops"].tolist() == [2 * 2 * batch * length * length * width] * 2


def test_what_cannot_be_measured_is_said_in_words():
    graph = fx.symbolic_trace(nn.Linear(4, 4))
    with pytest.raises(TypeError, match=r"graph: expected a torch.nn.Module, .* got 'linear'"):
        profile("linear", torch.ones(1))
    with pytest.raises(ValueError, match="model: the Linear does not run on these"):
        profile(graph, torch.ones(1, 3))
    with pytest.raises(ValueError, match="graph: it is on the meta device"):
        profile(copy.deepcopy(graph).to("meta"), torch.ones(1, 4))
    with pytest.raises(ValueError, match="rounds: expected a positive number, got 0"):
        profile(graph, torch.ones(1, 4), rounds=0)
    assert profile(fx.GraphModule(nn.Module(), fx.Graph()), ()).empty


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("stored", ["to_sparse", "to_sparse_csr"])
def test_memory_of_sparse_tensors_is_that_of_what_they_store(stored):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.matmul, (graph.call_method(stored, (x,)), x)))
    table = profile(fx.GraphModule(nn.Module(), graph), torch.ones(30, 30), rounds=1)
    assert table.loc[stored, "peak_memory"] >= 900 * 4  # the values alone
