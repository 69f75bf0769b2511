"""Places like the nodes that are selected: a pattern of these, its matches, and what may take their place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from inspected import Page
from torch import nn

import fxlab
from fxlab.notebook.inspector import Inspector
from fxlab.view_model.others import torch_functions


class Block(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = nn.Linear(4, 4), factor

    def forward(self, x):
        x = self.inner(x)
        return x * torch.sigmoid(x) * self.factor


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(factor) for factor in (2.0, 2.0, 3.0))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.softmax(-1)


SILU, SCALED = ["sigmoid", "mul"], ["sigmoid", "mul", "mul_1"]


@pytest.fixture
def page():
    torch.manual_seed(0)
    inspector = Inspector(fxlab.Session(Model(), torch.randn(2, 4), passes=[fxlab.RemoveDeadCode()]))
    yield Page(inspector)
    inspector.close()


def others(page: Page, nodes: list[str], replacement: str = "", *, between=False, **choices: str) -> Any:
    message = {"type": "find-others", "nodes": nodes, "between": between, "replacement": replacement}
    return page.asks({**message, "choices": {key.replace("__", ":"): each for key, each in choices.items()}})


def refused(page: Page, message: dict[str, Any]) -> str:
    page.sends({**message, "request": "r"})
    assert page.error is not None
    return page.error["text"]


def test_the_others_are_counted_for_each_module(page: Page):
    found = others(page, SILU)
    assert "def pattern(blocks_0_inner):" in found["pattern"]
    assert found["count"] == 3
    assert found["modules"] == [{"name": f"blocks.{number}", "count": 1} for number in range(3)]
    assert found["roles"]["sigmoid"] == "picked"
    assert found["roles"]["sigmoid_2"] == "fits"
    assert "find_matches" in found["source"]


def test_nodes_between_belong_to_the_selection(page: Page):
    assert others(page, ["blocks_0_inner", "mul_1"], between=True)["nodes"] == ["blocks_0_inner", *SCALED]


def test_a_number_that_is_captured_finds_more(page: Page):
    found = others(page, SCALED)
    assert found["count"] == 2
    (number, value) = found["chips"]
    assert number == {
        **{"key": "mul_1:0", "words": "2.0 in mul_1", "chosen": "exact"},
        "options": ["exact", "captured"],
    }
    assert value["words"] == "blocks_0_inner"
    captured = others(page, SCALED, mul_1__0="captured")
    assert captured["count"] == 3
    assert "number: float" in captured["pattern"]
    assert others(page, SCALED, blocks_0_inner="a number")["count"] == 0


@pytest.mark.parametrize("name", ["torch.nn.functional.silu", "F.silu"])
def test_a_replacement_is_compared_by_value_and_added(page: Page, name: str):
    found = others(page, SILU, name)
    assert found["replaced"] == {"words": "The same results at 3 of 3 places.", "canAdd": True}
    page.sends({"type": "add-others", "nodes": SILU, "choices": {}, "replacement": name})
    assert page.error is None
    session = page.inspector.session
    session.apply("to-silu")
    assert (
        len(
            fxlab.rewriting.transformed_nodes(
                session.graph_module, session.passes["to-silu"], original=session.original
            )
        )
        == 3
    )
    assert session.verdict()
    namespace: dict[str, Any] = {}
    exec(found["source"], namespace)
    assert len(namespace["others"].candidates(session.original)) == 3


def test_the_order_of_arguments_is_found_by_value(page: Page):
    def model(x, y):
        return torch.relu(y) - x

    session = fxlab.Session(fxlab.symbolic_trace(model, (torch.randn(3), torch.randn(3))), passes=[])
    inspector = Inspector(session)
    found = others(Page(inspector), ["sub"], "torch.subtract")
    assert found["replaced"]["canAdd"]
    rsub = others(Page(inspector), ["sub"], "torch.rsub")
    assert rsub["replaced"]["canAdd"]
    assert "torch.rsub(x, relu)" in rsub["source"]
    inspector.close()


def test_a_replacement_that_differs_is_not_added(page: Page):
    found = others(page, SILU, "torch.relu")
    assert not found["replaced"]["canAdd"]
    assert (
        "The same results at 0 of 3 places. 3 left alone: the replacement differs"
        in found["replaced"]["words"]
    )
    message = {"type": "add-others", "nodes": SILU, "choices": {}, "replacement": "torch.relu"}
    assert "was not confirmed" in refused(page, message)
    assert len(page.inspector.session.passes) == 1


@pytest.mark.parametrize(
    "name",
    ["torch.save", "torch.load", "torch.relu_", "__import__('os').getcwd", "torch.relu(x)", "os.system"],
)
def test_only_names_of_functions_of_tensors_are_taken(page: Page, name: str):
    replaced = others(page, SILU, name)["replaced"]
    assert "that computes with tensors is called" in replaced["words"]
    assert not replaced["canAdd"]
    message = {"type": "add-others", "nodes": SILU, "choices": {}, "replacement": name}
    assert "that computes with tensors is called" in refused(page, message)
    assert name not in torch_functions()


def test_what_makes_no_pattern_is_an_error_in_words(page: Page):
    message = {"type": "find-others", "between": False, "choices": {}, "replacement": ""}
    assert "no node 'nowhere'" in refused(page, {**message, "nodes": ["nowhere"]})
    assert "nodes that compute something" in refused(page, {**message, "nodes": ["x"]})
    wrong = {**message, "nodes": SILU, "choices": {"blocks_0_inner": "import os"}}
    assert "not 'import os'" in refused(page, wrong)


def test_functions_are_listed_by_names_alone(page: Page):
    names = page.asks({"type": "list-functions"})
    assert {"F.silu", "torch.nn.functional.silu", "torch.softmax"} <= {*names}
    assert not any("(" in name for name in names)


def test_a_number_is_the_same_as_another():
    def scaled(x):
        return (x * 2 + 2).relu(), (x * 3 + 3).relu(), (x * 4 + 5).relu()

    inspector = Inspector(fxlab.Session(fxlab.symbolic_trace(scaled, (torch.ones(3),)), passes=[]))
    page = Page(inspector)
    first, second = others(page, ["mul", "add"])["chips"][:2]
    assert first["options"] == ["exact", "captured"]
    assert second["options"] == ["exact", "captured", "same as in mul"]
    found = others(page, ["mul", "add"], mul__0="captured", add__0="captured")
    assert found["count"] == 3
    found = others(page, ["mul", "add"], add__0="same as in mul")
    assert found["count"] == 2
    assert [chip["chosen"] for chip in found["chips"][:2]] == ["captured", "same as in mul"]
    inspector.close()
