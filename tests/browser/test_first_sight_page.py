"""Properties of the first screen of any model: nothing is covered or jumps, and there is one verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page
from zoo import tiny

import fxlab

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore")]

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

MODELS = (
    "BERT-base", "ResNet-50", "T5, 6 + 6 layers", "GPT-2", "Llama, 32 layers", "Mixtral, 8 layers",
    "ViT-base", "UNet", "Whisper, 4 + 4 layers", "CLIP",
)  # fmt: skip
SMALL = {"BERT": "bert", "T5": "t5"}
"""The tiny ones of the test zoo."""
COVERED = """() => {
    const rect = e => e.getBoundingClientRect();
    const graph = rect(document.querySelector(".fxi-graph"));
    const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
    const boxes = ".fxi-layer .node:not(.fx-chip) > .fx-shape, .fxi-cluster-label > text";
    const seen = [...document.querySelectorAll(boxes)]
        .filter(e => overlap(rect(e), graph) && rect(e).width > 0);
    const nameOf = e => e.parentElement.textContent;
    return seen.flatMap((a, i) => seen.slice(i + 1)
        .filter(b => a.parentElement !== b.parentElement && overlap(rect(a), rect(b)))
        .map(b => `${nameOf(a)} | ${nameOf(b)}`));
}"""
"""Boxes and titles of groups that lie on one another."""
CARDS = """() => [...document.querySelectorAll(".fxi-card")].filter(card => card.checkVisibility())
    .map(card => card.querySelector(".fxi-card-name"))
    .map(name => [name.textContent, name.scrollHeight > name.clientHeight + 1])"""
LOOKS = {
    "fxi-good": ("Same bits", "Within"),
    "fxi-bad": ("Different",),
    "fxi-muted": ("Not", "Nothing", "There"),
}


@pytest.fixture(params=["BERT", *(pytest.param(name, marks=pytest.mark.weekly) for name in ("T5", *MODELS))])
def page(request: pytest.FixtureRequest, browser: Browser, tmp_path: Path) -> Page:
    """A report of a model with the first two passes on that find something, as it opens."""
    from make_first_sight import MODELS as MAKERS

    if request.param == "UNet":
        pytest.importorskip("diffusers")
    torch.manual_seed(0)
    small = SMALL.get(request.param)
    model, inputs = (tiny(small), None) if small else MAKERS[request.param]()
    session = fxlab.Session(model.eval(), inputs)
    able = [p for p in session.passes if len(found := session.explain(p)) and found["matched"].any()]
    session.apply(*able[:2])
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(fxlab.report(session, path=tmp_path / "a.html", measure=False).as_uri())
    page.locator(".fxi-layer .node").first.wait_for()
    page.wait_for_function("() => !document.querySelector('.fxi-moving, .fxi-gliding')")
    return page


def test_nothing_is_covered_nothing_jumps_and_the_verdict_has_one_voice(page: Page) -> None:
    assert page.evaluate(COVERED) == []

    cards = page.evaluate(CARDS)
    assert len({name for name, _ in cards}) == len(cards)
    assert [name for name, is_cut in cards if is_cut] == []

    heights = []
    for tab in page.get_by_role("tab").all():
        if tab.is_visible():
            tab.click()
            heights.append(page.locator(".fxi-graph").bounding_box())
    assert all(height == heights[0] for height in heights)

    verdict = page.locator(".fxi-verdict")
    (look,) = (name for name in LOOKS if name in (verdict.get_attribute("class") or ""))
    assert verdict.locator("strong").inner_text().startswith(LOOKS[look])
    page.close()
