"""Weights that passes made of tensors which have changed since."""

import copy
import pickle

import pytest
import torch
from torch import nn

from fxlab import FoldConstants, FuseBatchNorm2dInConv2d, FuseBiasInLinear, MergeLinears


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        y = self.norm(self.conv(x)).mean((2, 3))
        return self.query(y) * (self.scale * 2) + self.key(y)


def load(model):
    model.load_state_dict({name: torch.ones_like(value) + 1 for name, value in model.state_dict().items()})


def replace(model):
    model.conv.weight = nn.Parameter(model.conv.weight + 1)
    model.query.weight = nn.Parameter(model.query.weight + 1)
    model.scale = nn.Parameter(model.scale + 1, requires_grad=False)


def cast(model):
    model.half()


PASSES = [FoldConstants(), FuseBatchNorm2dInConv2d(), MergeLinears(), FuseBiasInLinear()]


@pytest.mark.parametrize("change", [load, replace, cast])
@pytest.mark.parametrize("pass_", PASSES, ids=lambda pass_: pass_.name)
def test_a_node_is_stale_when_the_tensors_it_was_made_of_have_changed(pass_, change):
    model = Model().eval()
    traced = torch.fx.symbolic_trace(model)
    originals = traced if isinstance(pass_, FoldConstants) else model
    graph_module = pass_(traced)
    assert pass_.get_transformed_nodes(graph_module)
    assert pass_.get_stale_nodes(graph_module) == []
    change(originals)
    stale = pass_.get_stale_nodes(graph_module)
    assert stale
    assert set(stale) <= set(pass_.get_transformed_nodes(graph_module))
    pass_(pass_(graph_module, reverse=True))
    assert pass_.get_stale_nodes(graph_module) == []


@pytest.mark.parametrize("through", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("pass_", PASSES, ids=lambda pass_: pass_.name)
def test_copies_know_it_too(pass_, through):
    originals = Model().eval()
    traced = torch.fx.symbolic_trace(originals)
    pass_(traced)
    assert pass_.get_stale_nodes(through(traced)) == []
    load(originals)
    assert len(pass_.get_stale_nodes(through(traced))) == len(pass_.get_stale_nodes(traced)) > 0


def test_another_pass_has_no_stale_nodes():
    originals = Model().eval()
    traced = torch.fx.symbolic_trace(originals)
    MergeLinears()(traced)
    load(originals)
    assert FuseBiasInLinear().get_stale_nodes(traced) == []
