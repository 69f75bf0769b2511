"""The values of nodes, their counterparts and weights."""

import copy

import pytest
import torch
from torch import nn

import fxlab
from fxlab.overlays import Subject, source
from fxlab.validation.tensor_values.visited_run import FirstNonFinite, first_non_finite


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).T
        return self.norm(scores.softmax(-1) @ x), scores


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(0)
    return fxlab.Session(Attends().eval(), torch.randn(4, 4))


def test_a_value_is_what_the_graph_computes(session):
    found = fxlab.node_values(session, "matmul")
    assert torch.equal(found.of().tensor, session.original(session.inputs)[1].detach())
    assert list(found.table.index) == [("value", "output")]


def test_weights_are_those_of_the_module(session):
    found = fxlab.node_values(session, "q")
    assert torch.equal(found.of("weight", "bias").tensor, session.original.q.bias)
    assert [t.name for t in found.tensors if t.kind == "weight"] == ["weight", "bias"]


def test_a_changed_session_has_both_and_the_difference(session):
    changed = copy.deepcopy(session.original)
    with torch.no_grad():
        changed.q.weight.mul_(2)
    found = fxlab.node_values(changed, "matmul", session.inputs, original=session.original)
    value, before = found.of("value").tensor, found.of("original").tensor
    assert torch.equal(found.of("difference").tensor, value - before)
    assert found.of("difference").statistics.largest > 0


def test_running_leaves_the_model_as_it_was():
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).train())
    before = {name: buffer.clone() for name, buffer in graph.named_buffers()}
    state = torch.get_rng_state()
    fxlab.node_values(graph, "_1", torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(buffer, before[name]) for name, buffer in graph.named_buffers())
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_missing_is_said():
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    assert "no inputs" in fxlab.node_values(graph, "_0").notes[0]
    assert fxlab.node_values(graph, "_0").of("weight", "bias").statistics.shape == (2,)
    empty = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)).to("meta"))
    assert "meta device" in fxlab.node_values(empty, "_0", torch.ones(1, 2)).notes[0]
    with pytest.raises(ValueError, match="no node or module named 'other'"):
        fxlab.node_values(graph, "other")
    with pytest.raises(ValueError, match="node '_0' does not run on these inputs"):
        fxlab.node_values(graph, "_0", torch.ones(1, 3))
    broken = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3)))
    assert fxlab.node_values(broken, "_0", torch.ones(1, 2)).of().tensor.shape == (1, 2)
    with pytest.raises(TypeError, match="node: expected"):
        fxlab.node_values(graph, 3)


def test_colours_name_the_first_nan_and_infinity():
    class Breaks(nn.Module):
        def forward(self, x):
            large = x / 0
            return large - large, x * 2

    graph = torch.fx.symbolic_trace(Breaks())
    values = source("non-finite").overlay(Subject(graph, inputs=torch.ones(2))).values
    assert values == {"x": "finite", "truediv": "first infinity", "sub": "first NaN", "mul": "finite"}
    subject = Subject(graph, inputs=torch.tensor([0.5, 3.0]))
    assert source("largest-value").overlay(subject).values["mul"] == 6.0


def test_nan_and_infinity_are_followed_to_where_they_come_from():
    class Breaks(nn.Module):
        def forward(self, x, y):
            aside = y / 0
            return (x.log() - 1).sqrt() * 2, aside

    graph = torch.fx.symbolic_trace(Breaks())
    nodes = {node.name: node for node in graph.graph.nodes}
    inputs = (torch.tensor([0.0, 1.0]), torch.ones(1))
    assert first_non_finite(graph, nodes["mul"], inputs) == FirstNonFinite(nan="sqrt", inf="log")
    assert first_non_finite(graph, nodes["log"], inputs) == FirstNonFinite(nan=None, inf="log")
    assert first_non_finite(graph, nodes["x"], inputs) == FirstNonFinite(None, None)


def test_a_weight_that_a_node_gets_is_there_without_a_run():
    class Gets(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.scale

    graph = torch.fx.symbolic_trace(Gets())
    found = fxlab.node_values(graph, "scale")
    assert torch.equal(found.of("weight", "scale").tensor, graph.scale)
    ran = fxlab.node_values(graph, "scale", torch.ones(3))
    assert [tensor.kind for tensor in ran.tensors] == ["value"]


def test_a_buffer_that_is_written_before_it_is_read_again_is_shown_as_it_was_read():
    root, graph = nn.Module(), torch.fx.Graph()
    root.register_buffer("count", torch.zeros(2))
    x, before = graph.placeholder("x"), graph.get_attr("count")
    written = graph.call_method("add_", (before, 3.0))
    after = graph.get_attr("count")
    graph.output(graph.call_function(torch.add, (x, after)))
    module = torch.fx.GraphModule(root, graph)
    assert written.users == {}
    assert fxlab.node_values(module, after.name, torch.ones(2)).of().tensor.tolist() == [3, 3]
    assert module.count.tolist() == [0, 0]
