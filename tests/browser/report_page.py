"""A report of a small model with hostile names in a browser, and where things are in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Locator, Page, expect
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session

HOSTILE = "</script><img src=x onerror='hacked = 1'>&amp; \u202e\U0001f600"
SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.add_module(HOSTILE, nn.Sequential(nn.Linear(8, 8), nn.Tanh()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.get_submodule(HOSTILE)(self.query(x) * self.key(x) / 3.0)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return {HOSTILE: self.head(x)}


def opened(browser: Browser, file: Path, script: str = "", *, whole: bool = True, **options: Any) -> Page:
    """Open a report, after a script, and show the ``whole`` graph; the page remembers requests and errors."""
    context = browser.new_context(viewport={"width": 1500, "height": 950}, offline=True, **options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.requested = []  # type: ignore[attr-defined]
    page.problems = []  # type: ignore[attr-defined]
    page.on("request", lambda request: page.requested.append(request.url))  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.problems.append(str(error)))  # type: ignore[attr-defined]
    page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))  # type: ignore[attr-defined]
    page.add_init_script(script)
    page.goto(file.as_uri())
    page.wait_for_selector(".fxi-layer svg")
    if whole:
        page.get_by_role("button", name="Show all of the graph").first.click()
        settle(page)
    return page


@contextmanager
def checked(page: Page) -> Iterator[Page]:
    """Afterwards a report must have asked for nothing but itself and its worker, without an error."""
    yield page
    assert [url for url in page.requested if not url.startswith(("file:", "blob:"))] == []  # type: ignore[attr-defined]
    assert page.problems == []  # type: ignore[attr-defined]
    page.context.close()


def make_session() -> Session:
    """Return a session of four blocks with two passes on."""
    torch.manual_seed(0)
    passes = [MergeLinears(), ChangeTrueDivToMulByInverse()]
    tokens = torch.arange(10).reshape(2, 5)
    session = Session(fx.symbolic_trace(Blocks()), (tokens,), passes=passes)
    session.apply("merge-linears")
    session.apply("change-true-div-to-mul-by-inverse")
    return session


def settle(page: Page) -> None:
    expect(page.locator(".fxlab-inspector[aria-busy='true']")).to_have_count(0)
    page.wait_for_function("() => !document.querySelector('.fxi-moving, .fxi-gliding')")


def box(within: Page | Locator, title: str) -> Locator:
    """Return the box or the cluster with a title."""
    page = within.page if isinstance(within, Locator) else within
    exact = re.compile(f"^{re.escape(title)}$")
    return within.locator(".fxi-layer svg :is(.node, .fxi-cluster-label)").filter(
        has=page.locator(".fx-title", has_text=exact)
    )


def show_table(within: Page | Locator, title: str) -> None:
    """Press the tab of a table, or its entry in the menu of those that find no room."""
    page = within.page if isinstance(within, Locator) else within
    # Tabs find out how much room they have with the next frame.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab = within.get_by_role("tab", name=title, exact=True)
    if not tab.is_visible():
        within.get_by_text("More", exact=True).click()
        tab = within.locator(".fxi-more-tabs").get_by_role("button", name=title, exact=True)
    tab.click()


def details_title(page: Page) -> Locator:
    return page.get_by_role("region", name="Details").get_by_role("heading", level=2)
