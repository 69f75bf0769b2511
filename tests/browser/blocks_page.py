"""The inspector of a small model with hostile names in a notebook, and where things are in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_lab import JupyterLab
from lab_page import LabPage
from playwright.sync_api import Locator, expect

MODEL = '''
import torch
from torch import fx, nn

import fxlab

HOSTILE = "<img src=x onerror='hacked = 1'>&amp;"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.add_module(HOSTILE, nn.Sequential(nn.Linear(8, 8), nn.Tanh()))

    def forward(self, x):
        return x + self.get_submodule(HOSTILE)(self.query(x) * self.key(x) / 3.0)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return {HOSTILE: self.head(x)}


class Breaks(fxlab.Transformation):
    """<b id=injected>Takes the model apart</b>, and raises."""

    def __init__(self, note):
        self.note = note

    def transform(self, graph_module):
        graph_module.delete_submodule("head")
        raise RuntimeError(f"something went wrong halfway {self.note}")


torch.manual_seed(0)
exact = [fxlab.MergeLinears(), fxlab.ChangeTrueDivToMulByInverse(), fxlab.FuseBatchNorm2dInConv2d()]
tokens = torch.arange(10).reshape(2, 5)
session = fxlab.Session(fx.symbolic_trace(Blocks()), (tokens,), passes=[*exact, Breaks(HOSTILE)])
fxlab.inspect(session)
'''
NODES, MERGED_NODES = 32, 36


def open_blocks(lab: JupyterLab, page: LabPage) -> LabPage:
    """Open a notebook in which a cell shows the session; see `shown_twice`."""
    lab.write("inspector.ipynb", MODEL, "fxlab.inspect(session)")
    page.open("inspector.ipynb")
    page.run_all()
    page.inspector(1)
    page.wait_until_idle()
    show_once(page)
    return page


def show_once(page: LabPage) -> None:
    """Take away what the second cell shows, as all that happens takes twice as long with it."""
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    page.command("notebook:clear-cell-output")
    expect(page.page.locator(".fxlab-inspector")).to_have_count(1)


@contextmanager
def shown_twice(page: LabPage) -> Iterator[Locator]:
    """Show the session in the second cell, too, and give its inspector."""
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    page.command("notebook:run-cell")
    found = page.inspector(1)
    page.settle(found)
    yield found
    show_once(page)


def put_back(page: LabPage, inspector: Locator) -> None:
    """Switch all passes off, close what was opened, select nothing, and show the first table."""
    if (table := inspector.get_by_role("tab", name="Output differences")).is_visible():
        table.click()
    for name in ("Switch all passes off", "Close opened groups", "Back to the model"):
        button = inspector.get_by_role("button", name=name)
        if button.is_visible() and button.is_enabled():
            button.click()
            page.settle(inspector)
    inspector.get_by_role("button", name="Show all of the graph").click()
    page.settle(inspector)


def switch(inspector: Locator, name: str) -> Locator:
    return inspector.get_by_role("switch", name=name)


def open_passes(inspector: Locator) -> None:
    """Open the passes, which are folded in a narrow window."""
    panel = inspector.get_by_role("button", name="Passes panel")
    if panel.get_attribute("aria-expanded") == "false":
        panel.click()


def box(inspector: Locator, title: str) -> Locator:
    """Return the box of the graph with a title."""
    exact = re.compile(f"^{re.escape(title)}$")
    return inspector.locator(".fxi-layer svg .node").filter(
        has=inspector.page.locator(".fx-title", has_text=exact)
    )


def has_nodes(inspector: Locator, count: int) -> None:
    expect(inspector.locator(".fxi-header")).to_contain_text(f"{count} nodes")


def is_on(inspector: Locator, name: str, on: bool) -> None:
    expect(switch(inspector, name)).to_have_attribute("aria-checked", "true" if on else "false")


def cut_off(inspector: Locator) -> list[str]:
    """Return the controls and headings whose words do not fit, or that lie outside."""
    found: list[str] = inspector.evaluate(
        """root => {
            const { right } = root.getBoundingClientRect();
            const scrolling = ".fxi-cards, .fxi-table, .fxi-panel-body";
            return [...root.querySelectorAll("button, h1, h2, [role=switch], [role=tab]")]
                .filter(e => e.getClientRects().length && !e.closest(scrolling))
                .filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > right)
                .map(e => e.textContent || e.ariaLabel);
        }"""
    )
    return found
