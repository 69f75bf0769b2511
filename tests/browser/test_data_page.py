"""What a data set has told, in a JupyterLab: its tabs, a worst batch that opens, and values on a batch."""

from __future__ import annotations

import re

import pytest
from accessibility import violations
from blocks_page import box
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

MODEL = """
import torch
from torch import fx, nn

import fxlab


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        heads = [self.query(x).reshape(2, -1, 4, 2), self.key(x).reshape(2, -1, 4, 2)]
        query, key = (one.transpose(1, 2) for one in heads)
        return torch.softmax(query @ key.transpose(-1, -2), -1) @ key


def clamped(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.clamp, (output.args[0], -9.0, 9.0)),)
    graph_module.recompile()


torch.manual_seed(0)
x = torch.randn(2, 5, 8)
clamp = fxlab.from_callable(clamped, name="clamp")
session = fxlab.Session(fx.symbolic_trace(Attends().eval()), x, passes=[clamp])
session.apply("clamp")
_ = session.evaluate([x, 1e3 * x, 0 * x])
fxlab.inspect(session)
"""


def test_a_worst_batch_is_opened_and_values_are_shown_on_it(lab: JupyterLab, lab_page: LabPage) -> None:
    lab.write("data.ipynb", MODEL)
    lab_page.open("data.ipynb")
    lab_page.run_all()
    inspector = lab_page.inspector()
    lab_page.settle(inspector)
    tables, panel = inspector.get_by_role("tablist"), inspector.get_by_role("tabpanel")
    tables.get_by_role("tab", name="Data", exact=True).click()
    panel.get_by_role("button", name="Judge on the data").click()
    lab_page.settle(inspector)
    expect(panel).to_contain_text("different")
    expect(panel.get_by_role("row", name=re.compile("top-1 of output"))).to_be_visible()

    box(inspector, "softmax").click()
    lab_page.settle(inspector)
    details = inspector.get_by_role("region", name="Details")
    details.get_by_role("button", name="Show values").click()
    lab_page.settle(inspector)
    maps = details.locator(".fxi-small-map")
    expect(maps).to_have_count(4)
    maps.nth(2).click()
    lab_page.settle(inspector)
    expect(maps.nth(2)).to_have_attribute("aria-pressed", "true")
    largest = details.get_by_role("row", name=re.compile("^Max "))
    on_own = largest.inner_text()
    details.get_by_role("combobox", name="On").select_option("batch 1")
    lab_page.settle(inspector)
    expect(largest).not_to_have_text(on_own)
    number = details.get_by_role("spinbutton", name="or batch")
    expect(number).to_have_value("1")
    number.fill("0")
    number.press("Enter")
    lab_page.settle(inspector)
    expect(largest).to_have_text(on_own.replace("\t", ""))
    for theme in ("Light", "Dark"):
        lab_page.set_theme(f"JupyterLab {theme}")
        lab_page.settle(inspector)
        assert violations(lab_page.page, ".fxi-details") == []
    lab_page.set_theme("JupyterLab Light")

    tables.get_by_role("tab", name="Worst batches").click()
    panel.get_by_role("button", name="Find the worst batches").click()
    lab_page.settle(inspector)
    panel.get_by_role("button", name="batch 1").click()
    lab_page.settle(inspector)
    expect(panel).to_contain_text("The session is open on batch 1.")
    tables.get_by_role("tab", name="Output differences").click()
    expect(panel.get_by_role("row").nth(1)).to_contain_text("outputno")  # not the same bits
