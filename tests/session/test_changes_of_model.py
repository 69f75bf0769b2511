"""A session judges its model as it was traced, and says so when Python would read something else now."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fxlab

GAIN = 2.0


class Settings:
    def __init__(self):
        self.scale, self.inner = 2.0, {"kinds": ["relu"]}


class Reads(nn.Module):
    offset = 1.0

    def __init__(self):
        super().__init__()
        self.linear, self.settings, self.table = nn.Linear(4, 4), Settings(), np.ones(4, np.float32)
        self.function = torch.relu

    def forward(self, x):
        x = self.linear(x) * self.settings.scale * GAIN + self.offset + torch.from_numpy(self.table)
        return self.function(x) if "relu" in self.settings.inner["kinds"] else x


CHANGES = {
    "settings": lambda model, patch: setattr(model.settings, "scale", 3.0),
    "settings inside": lambda model, patch: model.settings.inner["kinds"].clear(),
    "table": lambda model, patch: model.table.fill(5),
    "function": lambda model, patch: setattr(model, "function", torch.tanh),
    "Reads.offset": lambda model, patch: patch.setattr(Reads, "offset", 5.0),
    f"{__name__}.GAIN": lambda model, patch: patch.setitem(globals(), "GAIN", 5.0),
    "linear": lambda model, patch: setattr(model, "linear", nn.Linear(4, 4)),
    "linear.weight": lambda model, patch: setattr(model.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "linear._forward_hooks": lambda model, patch: model.linear.register_forward_hook(lambda *args: None),
}


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_the_graph_does_not_follow_is_told(name, monkeypatch):
    model = Reads().eval()
    session = fxlab.Session(model, torch.randn(2, 4))
    assert session.verdict()
    CHANGES[name](model, monkeypatch)
    with pytest.warns(RuntimeWarning, match="changed since it was traced") as told:
        session.verdict()
    assert name.partition(" ")[0] in str(told[0].message)
    assert told[0].filename == __file__


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_what_the_graph_shares_with_the_model_may_change():
    model, x = Reads().eval(), torch.randn(2, 4)
    session = fxlab.Session(model, x)
    with torch.no_grad():
        model.linear.weight.mul_(2)
    model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()
    assert torch.equal(session.original(x), model(x))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.linear = 0, nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_what_a_run_of_the_model_sets_is_no_change():
    model, x = nn.Sequential(Counts(), nn.ReLU()).eval(), torch.randn(2, 4)
    session = fxlab.Session(model, x)
    model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.verdict()
