"""What a model puts into the containers and objects that it is given, which its graph does not."""

import pytest
import torch
from torch import nn

import fxlab


class State:
    def __init__(self):
        self.hidden, self.rows = torch.zeros(3, 4), [torch.ones(4)]


class Puts(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x, given):
        return self.function(self, x, given)


def new_key(model, x, given):
    given["new"] = model.linear(x)
    return given["new"]


def other_item(model, x, given):
    given[0][0] = model.linear(x)
    return given[0][0]


def attribute(model, x, given):
    given.hidden = model.linear(x)
    return given.hidden


def longer_list(model, x, given):
    given.rows.append(x)
    return model.linear(x)


def returned(model, x, given):
    given.hidden = model.linear(x)
    return given


def written(model, x, given):
    given["x"].add_(1)
    return model.linear(x) + given["x"]


@pytest.mark.parametrize(
    ("function", "given", "changed"),
    [
        (new_key, {"x": torch.ones(4)}, "given"),
        (other_item, [[torch.zeros(4)], 2], "given[0]"),
        (attribute, State(), "given"),
        (longer_list, State(), "given.rows"),
    ],
)
def test_a_change_that_the_graph_does_not_make_is_told(function, given, changed):
    with pytest.warns(fxlab.TraceWarning, match="the model changes what it holds, the graph does not"):
        traced = fxlab.symbolic_trace(Puts(function), (torch.randn(3, 4), given))
    found = [finding for finding in traced.meta["trace"].findings if finding.code == "input-changed"]
    assert [finding.what for finding in found] == [changed]


@pytest.mark.parametrize(("function", "given"), [(returned, State()), (written, {"x": torch.ones(4)})])
def test_what_the_graph_returns_or_writes_is_none(function, given):
    traced = fxlab.symbolic_trace(Puts(function), (torch.randn(3, 4), given))
    assert not [finding for finding in traced.meta["trace"].findings if finding.code == "input-changed"]
