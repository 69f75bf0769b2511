"""compare_nodes and first_divergence of graphs that call bodies: such a call is one node."""

import copy

import pytest
import torch
from torch import fx, nn
from torch._higher_order_ops.while_loop import while_loop

import fxlab
from fxlab import Session, compare_nodes, first_divergence
from fxlab.models.graph_modules.bodies import all_bodies

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own of what it captures


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) / 3, lambda x: x / 3, (x,))


class Loop(nn.Module):
    def forward(self, x):
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y / 3 + i), (torch.tensor(0), x))


CASES = {"cond": (Cond(), (40, 3)), "while_loop": (Loop(), (120,))}


def divided_by_four(graph_module):
    """Return a copy whose bodies divide by another number."""
    result = copy.deepcopy(graph_module)
    for body in all_bodies(result).values():
        for node in body.graph.nodes:
            if "div" in str(node.target) and node.args[1] == 3:
                node.args = (node.args[0], 4)
        body.recompile()
    return result


@pytest.mark.parametrize("name", CASES)
def test_a_call_of_bodies_is_compared_as_one_node(name):
    model, shape = CASES[name]
    session = Session(torch.export.export(model, (torch.rand(shape),)))
    session.apply("change-true-div-to-mul-by-inverse")
    table = compare_nodes(session.original, session.graph_module, session.inputs, judge=True)
    assert 0 < table["introduced"][name] < 1e-6, table.to_string()
    assert table["status"][name] == "within the model's own rounding"
    assert first_divergence(session.original, session.graph_module, session.inputs) is None
    found = first_divergence(session.original, divided_by_four(session.original), session.inputs)
    assert found is not None
    assert found.node == name
    assert "different function" in found.judgement.reason


def test_a_body_writes_into_copies():
    outer, inner = fx.Graph(), fx.Graph()
    x = inner.placeholder("x")
    inner.output(inner.call_method("add_", (x, 1)))
    x = outer.placeholder("x")
    called = outer.call_module("body", (outer.call_function(torch.neg, (x,)),))
    outer.output(outer.call_function(torch.mul, (called, 2)))
    graph = fx.GraphModule({"body": fx.GraphModule(nn.Module(), inner)}, outer)
    table = fxlab.compare_nodes(graph, copy.deepcopy(graph), torch.ones(3))
    assert [*table.index] == ["x", "neg", "body", "mul"]
    assert (table["accumulated"] == 0).all()
