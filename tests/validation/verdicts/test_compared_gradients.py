"""Gradients are judged as outputs are."""

import torch
from torch import nn

import fxlab
from fxlab import MergeLinears, Session, verdict
from fxlab.models.graph_modules.copies import changed_copy
from fxlab.validation import Status


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.tanh(self.a(x))
        return self.b(hidden) + self.c(hidden) / 3


def graph_and_inputs():
    x = torch.randn(16, 8)
    return fxlab.symbolic_trace(Model(), x), x


def test_a_gradient_that_is_cut_is_a_difference():
    def cut(graph_module):
        (node,) = graph_module.graph.find_nodes(op="call_function", target=torch.tanh)
        with graph_module.graph.inserting_after(node):
            detached = graph_module.graph.call_method("detach", (node,))
        node.replace_all_uses_with(detached, delete_user_cb=lambda user: user is not detached)
        graph_module.recompile()
        return graph_module

    graph, x = graph_and_inputs()
    wrong = changed_copy(graph, cut)
    assert verdict(graph, wrong, x).status is Status.SAME_BITS
    found = verdict(graph, wrong, x, gradients=True)
    assert found.status is Status.DIFFERENT
    assert found.outputs["gradient of a.weight"].reason == "only the original has a gradient here"
    assert found.outputs["gradient of b.weight"].status is Status.SAME_BITS


def test_gradients_of_a_correct_pass_are_within_rounding_and_new_weights_are_named():
    graph, x = graph_and_inputs()
    session = Session(graph, x, passes=[MergeLinears()])
    session.apply("merge-linears")
    found = session.verdict(gradients=True)
    assert found.agrees, found
    assert {"gradient of x", "gradient of a.weight", "gradient of a.bias"} <= found.outputs.keys()
    assert {"b.weight", "c.weight"} <= set(found.without_gradients)
    assert "not compared: the gradients of 6 parameters" in found.reason
    assert all(parameter.grad is None for parameter in graph.parameters())


def test_a_wrong_gradient_behind_a_right_value_is_found():
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient / 2

    def half(x):
        return Half.apply(x)

    def halve(graph_module):
        (node,) = graph_module.graph.find_nodes(op="call_function", target=torch.tanh)
        with graph_module.graph.inserting_after(node):
            halved = graph_module.graph.call_function(half, (node,))
        node.replace_all_uses_with(halved, delete_user_cb=lambda user: user is not halved)
        graph_module.recompile()
        return graph_module

    graph, x = graph_and_inputs()
    found = verdict(graph, changed_copy(graph, halve), x, gradients=True)
    assert found.status is Status.DIFFERENT
    assert found.outputs["gradient of x"].status is Status.DIFFERENT
