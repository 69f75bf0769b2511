"""A model on the screen before it is checked, in a JupyterLab."""

from __future__ import annotations

import pytest
from blocks_page import is_on, open_passes, switch
from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

MODEL = """
import time

import torch
from torch import nn

import fxlab


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        time.sleep(1)
        return self.first(x) + self.second(x)


fxlab.inspect(Slow().eval(), torch.ones(2, 4))
"""


def test_a_pass_is_switched_while_the_graph_is_checked(lab: JupyterLab, lab_page: LabPage) -> None:
    lab.write("looks.ipynb", MODEL)
    lab_page.open("looks.ipynb")
    lab_page.run_all()
    expect(lab_page.page.locator(".jp-OutputArea")).to_contain_text("fxlab: recording a Slow")
    inspector = lab_page.inspector()
    verdict = inspector.locator(".fxi-verdict")
    expect(verdict).to_contain_text("Checking")

    open_passes(inspector)
    switch(inspector, "Merge linears").click()
    expect(inspector.locator(".fxi-busy")).to_contain_text("Checking the graph")
    lab_page.settle(inspector)
    is_on(inspector, "Merge linears", True)
    expect(inspector.get_by_role("alert")).to_be_hidden()

    switch(inspector, "Merge linears").click()
    lab_page.settle(inspector)
    expect(verdict).to_contain_text("No pass is on: same bits as the model on the inputs")
    expect(lab_page.page.locator(".jp-OutputArea")).not_to_contain_text("recording")
