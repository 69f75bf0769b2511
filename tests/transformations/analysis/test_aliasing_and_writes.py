import operator

import pytest
import torch
from torch import fx, nn
from torch.fx import Graph, GraphModule
from torch.nn import functional as F

from fxlab.transformations.analysis.graph_analysis import GraphFacts


@fx.wrap
def somebodys(_value):
    """Do what nobody knows, perhaps write."""


@fx.wrap
def set_item(value, index, item):
    """Stand for an assignment, which torch.fx does not record."""


@pytest.mark.parametrize("join", [operator.add, operator.mul])
def test_thousands_of_sums_of_unknown_shapes_are_looked_at_once_each(join):
    graph = Graph()
    value = before = graph.call_function(somebodys, (graph.placeholder("x"),))
    for _ in range(2000):  # each reads two: one look for every way through them would never end
        value, before = graph.call_function(join, (value, before)), value
    graph.output(value)
    writes = GraphFacts(GraphModule(nn.Module(), graph)).writes
    assert not writes.may_share_memory(value, before)


class Writing(nn.Module):
    """Calls a function between two nodes that read an input."""

    def __init__(self, write):
        super().__init__()
        self.write, self.norm = write, nn.BatchNorm1d(2).train()
        self.buffer, self.other = nn.Buffer(torch.ones(3, 2)), nn.Buffer(torch.ones(3, 2))

    def forward(self, x, y):
        first = x.sin()
        self.write(self, y)
        return first + x.sin() + self.other


WRITES = {
    "method": lambda model, y: y.add_(1),
    "view": lambda model, y: y[0].zero_(),
    "item": lambda model, y: set_item(y, 0, 1),
    "out": lambda model, y: torch.add(y, 1, out=y),
    "operator": lambda model, y: torch.ops.aten.index_put_(y, [torch.tensor([0])], torch.zeros(2)),
    "list": lambda model, y: torch._foreach_add_([y], 1),
    "custom operator": lambda model, y: torch.ops.fxlab_tests.write(y),
    "buffer": lambda model, y: model.buffer.add_(1),
    "statistics": lambda model, y: model.norm(torch.ones(2, 2)),
    "statistics of a function": lambda model, y: F.batch_norm(
        torch.ones(2, 2), model.norm.running_mean, model.norm.running_var, training=True
    ),
    "somebody's": lambda model, y: somebodys(y),
}
LIBRARY = torch.library.Library("fxlab_tests", "FRAGMENT")
LIBRARY.define("write(Tensor(a!) x) -> ()")
LIBRARY.impl("write", lambda x: x.zero_(), "CompositeExplicitAutograd")


class ReadsBuffers(fx.Tracer):
    """Records the reading of a buffer."""

    proxy_buffer_attributes = True


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_an_input_or_the_model_may_be_one_to_any_input(write):
    model = Writing(WRITES[write])
    gm = GraphModule(model, ReadsBuffers().trace(model))
    for node in gm.graph.nodes:
        node.target = operator.setitem if node.target is set_item else node.target
    first, second = [node for node in gm.graph.nodes if node.target == "sin"]
    x, _ = gm.graph.find_nodes(op="placeholder")
    writes = GraphFacts(gm).writes
    assert writes.is_written(x)
    assert writes.epoch(x, first) != writes.epoch(x, second)
    other = next(node for node in gm.graph.find_nodes(op="get_attr") if node.target == "other")
    assert not writes.is_written(other)


def test_a_value_that_lies_in_the_memory_of_another_by_now_is_written_with_it():
    gm = fx.symbolic_trace(lambda x, y: (x * 2).set_(y).add_(1))
    assert [node.name for node in GraphFacts(gm).writes.inputs_written] == ["y"]


def test_values_that_the_graph_makes_are_none_of_its_inputs():
    gm = fx.symbolic_trace(lambda x, y: (x * 2).add_(y))
    x, y = gm.graph.find_nodes(op="placeholder")
    writes = GraphFacts(gm).writes
    assert not writes.is_written(x)
    assert writes.may_share_memory(x, y)
    assert writes.inputs_written == []
