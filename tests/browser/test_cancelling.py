"""What takes long can be cancelled in the page."""

from __future__ import annotations

import pytest
from first_steps import SLOW_MODEL
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(lab: JupyterLab, lab_page: LabPage) -> LabPage:
    lab.write("slow.ipynb", SLOW_MODEL)
    lab_page.open("slow.ipynb")
    lab_page.run_all()
    return lab_page


@pytest.fixture
def inspector(page: LabPage) -> Locator:
    found = page.inspector()
    page.settle(found)
    return found


def test_a_measurement_is_cancelled_beside_its_button(page: LabPage, inspector: Locator) -> None:
    panel = inspector.get_by_role("tabpanel")
    inspector.get_by_role("tab", name="Cost").click()
    panel.get_by_role("button", name="Measure the cost").click()
    expect(panel).to_contain_text("Measuring each node")
    expect(inspector.locator(".fxi-busy")).to_contain_text("Measuring each node")
    expect(inspector.locator(".fxi-busy button")).to_be_visible()
    panel.get_by_role("button", name="Cancel").click()
    page.settle(inspector)
    expect(panel).to_contain_text("Cancelled.")
    expect(panel.get_by_role("button", name="Measure the cost")).to_be_enabled()
    expect(inspector.locator(".fxi-busy")).to_be_hidden()
