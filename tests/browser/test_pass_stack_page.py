"""The list of passes as a stack: what is in it, and in which order it is applied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accessibility import violations
from blocks_page import cut_off
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser

CELL = """
import torch
from torch import fx, nn

import fxlab


class Model(nn.Module):
    def forward(self, x):
        x.sin()  # of which nothing is made
        return (x + 1.0) / 4.0


offered = [fxlab.ChangeTrueDivToMulByInverse(), fxlab.RemoveDeadCode()]
session = fxlab.Session(fx.symbolic_trace(Model()), (torch.ones(3),), passes=offered)
fxlab.inspect(session)
"""


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
    undo = found.get_by_role("button", name="Undo")
    while undo.is_enabled():
        undo.click()
        page.settle(found)
    order(found, "Change true div to mul by inverse", "Remove dead code")


def order(inspector: Locator, *names: str) -> None:
    expect(inspector.locator(".fxi-cards .fxi-card-name")).to_have_text(list(names))


def test_a_pass_is_moved_with_the_keyboard_and_keeps_the_focus(page: LabPage, inspector: Locator) -> None:
    inspector.get_by_role("button", name="Remove dead code", exact=True).click()
    earlier = inspector.get_by_role("button", name="Apply earlier")
    earlier.focus()
    page.page.keyboard.press("Enter")
    page.settle(inspector)
    order(inspector, "Remove dead code", "Change true div to mul by inverse")
    expect(earlier).to_be_focused()
    page.page.keyboard.press("Enter")
    order(inspector, "Remove dead code", "Change true div to mul by inverse")
    assert violations(page.page, ".fxlab-inspector") == []
    assert cut_off(inspector) == []
