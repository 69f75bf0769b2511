"""Which node computes what which node of the original computes."""

import copy

import pytest
import torch
from torch import fx, nn

from fxlab import FuseBatchNorm1dInConv1d, MergeLinears, Session, first_divergence
from fxlab.graphs.matching import match_nodes
from fxlab.models.graph_modules.copies import share_tensors_copy


def names(matching):
    return {str(node): str(other) for node, other in matching.originals.items()}


def changed(matching):
    return {str(node) for node in matching.originals} - {str(node) for node in matching.unchanged}


def test_inputs_of_any_name_match_in_their_order():
    assert not changed(match_nodes(*map(fx.symbolic_trace, (lambda x: x.relu(), lambda y: y.relu()))))


def test_a_removed_node_does_not_take_the_place_of_what_it_read():
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.ReLU()).eval())
    other = share_tensors_copy(graph)
    dropout = next(node for node in other.graph.nodes if node.target == "1")
    dropout.replace_all_uses_with(dropout.args[0])
    other.graph.erase_node(dropout)
    assert names(match_nodes(graph, other))["_0"] == "_0"


@pytest.mark.parametrize(
    "change",
    [
        lambda gm: setattr(gm.get_submodule("0"), "padding", (1, 1)),
        lambda gm: setattr(gm.get_submodule("1"), "eps", 0.1),
        lambda gm: gm.get_submodule("1").train(),
        lambda gm: setattr(gm.get_submodule("0"), "weight", nn.Parameter(torch.zeros(3, 3, 3, 3))),
        lambda gm: gm.get_submodule("0").register_forward_hook(lambda *_: None),
    ],
    ids=["argument", "epsilon", "mode", "weight", "hook"],
)
def test_a_module_that_differs_in_anything_is_changed(change):
    graph = fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)).eval())
    other = share_tensors_copy(graph)
    assert not changed(match_nodes(graph, copy.deepcopy(graph)))
    change(other)
    assert changed(match_nodes(graph, other))


def test_what_stands_in_for_another_is_known_through_all_passes_of_a_session():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)
            self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = self.norm(self.conv(x))
            return self.q(x) * self.k(x)

    model = Model().eval()
    model.norm.running_var *= 4
    session = Session(model, torch.randn(2, 4, 6))
    session.apply(FuseBatchNorm1dInConv1d())
    session.apply(MergeLinears())  # no reader of the norm is left as it was
    found = match_nodes(session.original, session.graph_module)
    assert names(found)["conv"] == "norm"
    assert first_divergence(session.original, session.graph_module, session.inputs) is None
