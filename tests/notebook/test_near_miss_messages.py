"""A near miss is shown at its nodes, and a relaxed pass is added to the session."""

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


@pytest.fixture
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


def test_a_relaxed_pass_is_added_and_applies(page: Page):
    (one,) = page.asks({"type": "near-miss", "signature": SCALE.signature, "node": "relu"})["relaxed"]
    assert "number: float" in one["source"]
    page.sends({"type": "add-relaxed", "signature": SCALE.signature, "node": "relu", "number": 0})
    assert page.error is None
    session = page.inspector.session
    session.apply("scale-relaxed")
    assert (
        "relu"
        in fxlab.rewriting.transformed_nodes(
            session.graph_module, session.passes["scale-relaxed"], original=session.original
        ).index
    )
    assert session.verdict()


def test_what_cannot_be_told_is_an_error_in_words(page: Page):
    page.sends({"type": "near-miss", "signature": KeepRelu().signature, "node": "relu", "request": "r"})
    assert "says nothing of relu" in page.error["text"]
    page.sends({"type": "add-relaxed", "signature": SCALE.signature, "node": "relu", "number": 7})
    assert "relaxed in 1 ways, not 7" in page.error["text"]


def test_a_test_of_the_reason_and_a_new_pass_are_written(page: Page):
    text = page.asks({"type": "as-test", "signature": SCALE.signature, "node": "relu"})
    assert 'code="other-argument"' in text
    text = page.asks({"type": "new-pass", "nodes": ["relu", "mul"], "choices": {"mul:0": "captured"}})
    assert "number: float" in text
    page.sends({"type": "as-test", "signature": KeepRelu().signature, "node": "relu", "request": "r"})
    assert "says nothing of relu" in page.error["text"]


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
    assert miss["relaxed"] == []
    inspector.close()
