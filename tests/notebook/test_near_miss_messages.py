"""A near miss is shown at its nodes."""

from __future__ import annotations

import pytest
import torch
from inspected import Page
from torch import nn

import fxlab
from fxlab.notebook.inspector import Inspector


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 3).to(x.dtype) + torch.sigmoid(x / 2)


class KeepRelu(fxlab.Transformation):
    def transform(self, graph_module):
        return graph_module


def pattern(x):
    return torch.relu(x * 2)


def replacement(x):
    return torch.relu(x) * 2


SCALE = fxlab.from_pattern(pattern, replacement, name="scale", preserves_computation=True)


@pytest.fixture(scope="module")
def page():
    session = fxlab.Session(Model(), torch.randn(2, 4), passes=[fxlab.RemoveDeadCode(), SCALE, KeepRelu()])
    inspector = Inspector(session)
    yield Page(inspector)
    inspector.close()


def test_each_node_has_its_part_in_a_near_miss(page: Page):
    miss = page.asks({"type": "near-miss", "signature": SCALE.signature, "node": "relu"})
    assert miss["roles"] == {"relu": "fits", "mul": "misfit"}
    assert miss["node"] == "mul"
    assert "the number of mul is 3" in miss["words"]
    assert miss["stage"] == 0


def test_what_cannot_be_told_is_an_error_in_words(page: Page):
    page.sends({"type": "near-miss", "signature": KeepRelu().signature, "node": "relu", "request": "r"})
    assert "says nothing of relu" in page.error["text"]


@pytest.mark.weekly
def test_what_computes_nothing_is_seen_through():
    def model(x):
        return torch.relu((x * 3).to(torch.float32) + 1)

    def shifted(x):
        return torch.relu(x * 2 + 1)

    scale = fxlab.from_pattern(shifted, shifted, name="shifted")
    session = fxlab.Session(fxlab.symbolic_trace(model, (torch.ones(3),)), passes=[scale])
    inspector = Inspector(session)
    miss = Page(inspector).asks({"type": "near-miss", "signature": scale.signature, "node": "relu"})
    assert miss["roles"] == {"to": "passed", "add": "fits", "relu": "fits", "mul": "misfit"}
    inspector.close()


def test_of_other_users_these_are_the_misfit():
    def used_twice(x):
        y = x * 2
        return torch.relu(y) + y.exp()

    session = fxlab.Session(fxlab.symbolic_trace(used_twice, (torch.ones(3),)), passes=[SCALE])
    inspector = Inspector(session)
    miss = Page(inspector).asks({"type": "near-miss", "signature": SCALE.signature, "node": "relu"})
    assert miss["roles"] == {"mul": "fits", "relu": "fits", "exp": "misfit"}
    inspector.close()
