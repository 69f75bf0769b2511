"""A hook that could never run is refused where it is registered."""

import copy

import pytest
import torch
from torch import nn

from fxlab import Session, from_exported, symbolic_trace
from fxlab.models.graph_modules.parts import Container

KINDS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook", "backward_hook"]


def blocks():
    return nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 2)).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_that_the_graph_does_not_call_takes_no_hooks(kind):
    traced = symbolic_trace(blocks(), torch.randn(2, 3))
    with pytest.raises(RuntimeError, match="a hook would never run"):
        getattr(traced.get_submodule("0"), f"register_{kind}")(print)


def test_modules_that_the_graph_calls_take_hooks_in_copies_and_stages_too():
    x, seen = torch.randn(2, 3), []
    session = Session(blocks(), x)
    session.apply("fuse-bias-in-linear")
    for module in (session.original, session.graph_module, copy.deepcopy(session.graph_module)):
        module.get_submodule("0.1").register_forward_hook(lambda *_: seen.append(1))
        module(x)
        assert type(module.get_submodule("0")) is Container
    assert len(seen) == 3


def test_the_holders_of_weights_of_an_exported_graph_take_no_hooks():
    x = torch.randn(2, 3)
    gm = from_exported(torch.export.export(blocks(), (x,)))
    with pytest.raises(RuntimeError, match="a hook would never run"):
        gm.get_submodule("1").register_forward_hook(print)
