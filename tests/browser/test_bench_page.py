"""The workbench above the graph: rewrites one by one, and near misses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blocks_page import cut_off, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

MODEL = """
import torch
from torch import nn
import torch.nn.functional as F

import fxlab


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        x = self.inner(x)
        return x * torch.sigmoid(x) / 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.relu(x * 3) / 4


def scaled(x):
    return torch.relu(x * 2)


def behind(x):
    return torch.relu(x) * 2


torch.manual_seed(0)
scale = fxlab.from_pattern(scaled, behind, name="scale-behind", preserves_computation=True)
session = fxlab.Session(Model(), torch.randn(2, 8), passes=[fxlab.ChangeTrueDivToMulByInverse(), scale])
fxlab.inspect(session)
"""
DIVISIONS = "Change true div to mul by inverse"


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    lab.write("bench.ipynb", MODEL)
    lab_page.open("bench.ipynb")
    lab_page.run_all()
    lab_page.inspector(0)
    lab_page.wait_until_idle()
    return lab_page


@pytest.fixture
def inspector(page: LabPage) -> Iterator[Locator]:
    found = page.inspector(0)
    page.settle(found)
    yield found
    off = found.get_by_role("button", name="Switch all passes off")
    if off.is_enabled():
        off.click()
        page.settle(found)


def press(page: LabPage, within: Locator, name: str) -> None:
    within.get_by_role("button", name=name, exact=True).click()
    page.settle(page.inspector(0))


def test_rewrites_are_stepped_through_excluded_and_applied_up_to_one(
    page: LabPage, inspector: Locator
) -> None:
    switch(inspector, DIVISIONS).click()
    page.settle(inspector)
    press(page, inspector, "Step through")
    bar = inspector.get_by_role("region", name="Rewrites")
    status = bar.get_by_role("status")
    expect(status).to_have_text(f"Rewrite of {DIVISIONS}: 1 of 4")
    expect(bar.get_by_role("group", name="Before")).to_contain_text("operator.truediv")
    expect(bar.get_by_role("group", name="After")).to_contain_text(", 0.5)")
    press(page, bar, "Previous rewrite")
    expect(status).to_contain_text("4 of 4")
    page.settle(inspector)
    expect(inspector.locator(".fxi-role-picked .fx-shape").first).to_be_in_viewport()
    assert cut_off(inspector) == []
    press(page, bar, "This one is wrong")
    expect(status).to_have_text(f"Excluded from {DIVISIONS}: 4 of 4")
    press(page, bar, "Next rewrite")
    press(page, bar, "Apply up to 1")
    expect(inspector.locator(".fxi-left-out").first).to_have_text("3 excluded")
    inspector.page.keyboard.press("Escape")
    page.settle(inspector)
    expect(bar).to_be_hidden()
    assert cut_off(inspector) == []
    press(page, inspector, "Undo")
    press(page, inspector, "Undo")


def test_a_near_miss_is_shown_at_its_nodes(page: LabPage, inspector: Locator) -> None:
    inspector.locator(".fxi-idle-passes > summary").click()
    card = inspector.locator(".fxi-card", has_text="Scale behind")
    card.locator("summary").click()
    card.get_by_role("button", name="Show what does not fit at").first.click()
    page.settle(inspector)
    bar = inspector.get_by_role("region", name="Near miss")
    expect(bar.get_by_role("status")).to_contain_text("the number of mul is 3, and the pattern has 2")
    expect(bar.get_by_role("list", name="Legend")).to_have_text("FitsDoes not fit")
    misfit = inspector.locator(".fxi-layer .fxi-role-misfit")
    expect(misfit.locator(".fxi-overlay-label")).to_have_text("does not fit")
    expect(misfit.locator(".fx-title")).to_have_text("mul_3")
    press(page, bar, "Show in code")
    expect(inspector.locator(".fxi-code-selected").first).to_contain_text("mul_3")
