"""Cells that show an inspector, and what most people do with it first."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

START_MS = 90_000
MODEL = """
import torch
from torch import fx, nn

import fxlab


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.query(x) * self.key(x)


fxlab.inspect(fxlab.Session(fx.symbolic_trace(nn.Sequential(Block(), nn.Tanh())), (torch.ones(2, 8),)))
"""
SLOW_MODEL = """
import time

import torch
from torch import fx, nn

import fxlab


def slow(x):
    time.sleep(600)
    return x


graph = fx.Graph()
called = graph.call_function(slow, (graph.call_function(torch.add, (graph.placeholder("x"), 1)),))
graph.output(graph.call_function(torch.mul, (called, 2)))
fxlab.inspect(fxlab.Session(fx.GraphModule(nn.Module(), graph), (torch.ones(2),)))
"""


def settle(inspector: Locator) -> None:
    expect(inspector).not_to_have_attribute("aria-busy", "true", timeout=START_MS)
    expect(inspector.locator(".fxi-moving, .fxi-gliding")).to_have_count(0)


def use(page: Page) -> None:
    """Do with the first inspector of a page what most people do first."""
    inspector = page.locator(".fxlab-inspector")
    inspector.locator(".fxi-layer svg").wait_for(timeout=START_MS)
    inspector.scroll_into_view_if_needed()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    title = inspector.get_by_role("region", name="Details").get_by_role("heading", level=2)
    expect(inspector.get_by_role("heading", level=1)).to_have_text("Sequential")

    switch = inspector.get_by_role("switch", name="Merge linears")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    settle(inspector)
    expect(inspector.locator(".fxi-layer svg .node.fx-op.fxi-lit")).to_have_count(1)
    expect(inspector.locator(".fxi-verdict").first).to_contain_text(re.compile("output|differ"))

    inspector.locator(".fxi-layer svg .node.fx-op.fxi-lit").click()
    expect(title).to_have_text("query_key_merged")
    inspector.locator(".fxi-graph").press("ArrowDown")
    expect(title).not_to_have_text("query_key_merged")

    percent = inspector.locator(".fxi-percent")
    before = percent.inner_text()
    inspector.locator(".fxi-graph").hover()
    inspector.locator(".fxi-graph").dispatch_event("wheel", {"deltaY": -240, "ctrlKey": True})
    expect(percent).not_to_have_text(before)
    settle(inspector)
    assert errors == []
