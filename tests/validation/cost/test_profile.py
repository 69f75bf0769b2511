"""What each node of a graph costs."""

import copy
import time

import pytest
import torch
from planted import traced
from torch import fx, nn
from torch.utils.flop_counter import FlopCounterMode

from fxlab import profile
from fxlab.values.tensors import bits_of


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


def test_operations_add_up_to_those_of_the_model():
    graph, inputs = traced("resnet")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        graph(**inputs)
    assert profile(graph, inputs, rounds=1)["flops"].sum() == counter.get_total_flops() > 0


def test_attention_is_counted_on_every_device():
    graph, inputs = traced("bert")
    table = profile(graph, inputs, rounds=1)
    attention = table[table["target"].str.contains("scaled_dot_product_attention")]
    batch, length, width = 2, 12, 32
    assert attention["flops"].tolist() == [2 * 2 * batch * length * length * width] * 2


def test_memory_that_a_node_takes_and_gives_back_is_seen():
    class Wasteful(nn.Module):
        def forward(self, x):
            return torch.stack([x, x, x]).sum()

    graph = fx.symbolic_trace(Wasteful())
    table = profile(graph, torch.randn(100), rounds=1)
    assert table.loc["stack", "peak_memory"] == 1200
    assert table.loc["sum_1", "peak_memory"] == 4


def test_writes_in_place_and_random_numbers_leave_nothing_behind():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.ReLU(inplace=True)).train())
    before = [bits_of(tensor).clone() for tensor in graph.state_dict().values()]
    x, state = torch.randn(2, 4), torch.get_rng_state()
    profile(graph, x)
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, before, map(bits_of, graph.state_dict().values())))


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
