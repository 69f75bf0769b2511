"""The list of passes as a stack: what is in it, and in which order it is applied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accessibility import violations
from blocks_page import cut_off, is_on, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

CELL = '''
import operator

import torch
from torch import fx, nn

import fxlab


class Scale(fxlab.Transformation):
    """Multiplies <b>what</b> is added."""

    def __init__(self, factor: float, label: str = "double", loud: bool = False):
        self.factor, self.label, self.loud = factor, label, loud

    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=operator.add):
            node.target, node.args = operator.mul, (node.args[0], self.factor)
            self.mark_as_transformed(node)
        return graph_module


class Model(nn.Module):
    def forward(self, x):
        x.sin()  # of which nothing is made
        return (x + 1.0) / 4.0


offered = [fxlab.ChangeTrueDivToMulByInverse(), fxlab.RemoveDeadCode()]
session = fxlab.Session(fx.symbolic_trace(Model()), (torch.ones(3),), passes=offered)
fxlab.inspect(session)
'''


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    lab.write("stack.ipynb", CELL)
    lab_page.open("stack.ipynb")
    lab_page.run_all()
    lab_page.inspector()
    lab_page.wait_until_idle()
    return lab_page


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    """An inspector; afterwards everything is taken back."""
    found = page.inspector()
    page.settle(found)
    yield found
    close = found.get_by_role("region", name="Add a pass").get_by_role("button", name="Close")
    if close.is_visible():
        close.click()
    undo = found.get_by_role("button", name="Undo")
    while undo.is_enabled():
        undo.click()
        page.settle(found)
    order(found, "Change true div to mul by inverse", "Remove dead code")


def order(inspector: Locator, *names: str) -> None:
    expect(inspector.locator(".fxi-cards .fxi-card-name")).to_have_text(list(names))


def grip(inspector: Locator, name: str) -> Locator:
    return inspector.locator(".fxi-card", has_text=name).locator(".fxi-grip")


def offers(page: LabPage, inspector: Locator) -> Locator:
    inspector.get_by_role("button", name="Add a pass").click()
    page.settle(inspector)
    return inspector.get_by_role("region", name="Add a pass")


def offer(page: LabPage, inspector: Locator, title: str) -> Locator:
    exactly = page.page.get_by_text(title, exact=True)
    return offers(page, inspector).locator("li").filter(has=exactly)


def test_a_pass_is_moved_with_the_keyboard_and_keeps_the_focus(page: LabPage, inspector: Locator) -> None:
    grip(inspector, "Remove dead code").focus()
    page.page.keyboard.press("ArrowUp")
    page.settle(inspector)
    order(inspector, "Remove dead code", "Change true div to mul by inverse")
    expect(grip(inspector, "Remove dead code")).to_be_focused()
    page.page.keyboard.press("ArrowUp")
    order(inspector, "Remove dead code", "Change true div to mul by inverse")


def test_a_pass_of_ones_own_is_added_with_its_arguments(page: LabPage, inspector: Locator) -> None:
    own = offer(page, inspector, "Scale")
    expect(own).to_contain_text("Multiplies <b>what</b> is added.")
    own.get_by_label("loud").select_option("True")
    own.get_by_label("factor").fill("0.5")
    assert violations(page.page, ".fxlab-inspector") == []
    assert cut_off(inspector) == []
    own.get_by_label("factor").press("Enter")
    page.settle(inspector)
    order(inspector, "Change true div to mul by inverse", "Remove dead code", "Scale")
    expect(inspector.get_by_role("region", name="Add a pass")).to_be_hidden()
    card = inspector.locator(".fxi-card", has_text="Scale")
    expect(card.locator(".fxi-arguments code")).to_have_text(["factor=0.5", "label='double'", "loud=True"])
    switch(inspector, "Scale").click()
    page.settle(inspector)
    is_on(inspector, "Scale", True)
    expect(inspector.locator(".fxi-layer svg .fx-changed")).not_to_have_count(0)

    # The same with another argument has a name of its own.
    own = offer(page, inspector, "Scale")
    own.get_by_label("factor").fill("3")
    own.get_by_role("button", name="Add Scale").click()
    page.settle(inspector)
    order(inspector, "Change true div to mul by inverse", "Remove dead code", "Scale", "Scale 2")
    expect(inspector.locator(".fxi-card.fxi-on .fxi-card-name")).to_have_text(["Scale"])


def test_what_cannot_be_made_is_said_and_what_was_typed_stays(page: LabPage, inspector: Locator) -> None:
    own = offer(page, inspector, "Scale")
    own.get_by_label("factor").fill("__import__('os')")
    own.get_by_role("button", name="Add Scale").click()
    page.settle(inspector)
    expect(inspector.get_by_role("alert")).to_contain_text("factor: expected a literal of Python")
    expect(own.get_by_label("factor")).to_have_value("__import__('os')")
    page.page.keyboard.press("Escape")
    expect(inspector.get_by_role("region", name="Add a pass")).to_be_hidden()
    expect(inspector.get_by_role("button", name="Add a pass")).to_be_focused()
