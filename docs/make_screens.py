"""Make the pictures of ``screens.md``: ``python docs/make_screens.py``.

Each state of the inspector is brought about by what a person does, and recorded in the light and in the dark
theme of a JupyterLab in headless Chromium.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from make_pictures import IMAGES, notebook
from PIL import Image
from playwright.sync_api import Locator, expect

FOLDER = IMAGES / "screens"
WIDTH, QUALITY, MOST_BYTES = 1100, 78, 3_000_000
SLOW_MS = 60_000
CELL = """
import time

import torch
from transformers import BertConfig, BertModel

import fxlab


class Quantize(fxlab.Transformation):
    'Round all weights to a number of bits.'

    def __init__(self, bits: int = 8, symmetric: bool = True):
        self.bits, self.symmetric = bits, symmetric

    def transform(self, graph_module):
        time.sleep(30)
        return graph_module


class DropHead(fxlab.Transformation):
    'Remove the pooler.'

    def transform(self, graph_module):
        raise ValueError("pooler_dense is read by pooler_activation")


torch.manual_seed(0)
passes = [fxlab.MergeLinears(), fxlab.FuseAttention(), fxlab.FuseBiasInLinear(), DropHead()]
model = BertModel(BertConfig(num_hidden_layers=4, attn_implementation="eager")).eval()
fxlab.inspect(fxlab.Session(model, passes=passes))
"""


def main() -> None:
    """Record all states, one after the other, in one session."""
    FOLDER.mkdir(exist_ok=True)
    with notebook(CELL) as page:
        inspector = page.inspector()
        for name, act in STATES.items():
            act(inspector)
            if name != "busy":
                page.settle(inspector)
            for theme in ("light", "dark"):
                page.set_theme(f"JupyterLab {theme.title()}")
                page.page.wait_for_timeout(1500)
                save(inspector.screenshot(), FOLDER / f"{name}-{theme}.webp", WIDTH, QUALITY)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES


def save(png: bytes, file: Path, width: int, quality: int) -> None:
    """Keep a picture in the size of a page of the docs."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    size = width, picture.height * width // picture.width
    picture.resize(size, Image.Resampling.LANCZOS).save(file, quality=quality, method=6)


def idle(inspector: Locator) -> None:
    """Wait until the kernel has answered."""
    expect(inspector).not_to_have_attribute("aria-busy", "true", timeout=SLOW_MS)


def press(inspector: Locator, name: str) -> None:
    """Press a button and wait for what comes of it."""
    inspector.get_by_role("button", name=name, exact=True).click()
    idle(inspector)


def switch(inspector: Locator, name: str) -> None:
    """Switch a pass and wait for what comes of it."""
    inspector.get_by_role("switch", name=name, exact=True).click()
    idle(inspector)


def search(inspector: Locator, words: str, keys: str = "") -> None:
    """Write into the search field, press keys, and wait for what comes of it."""
    inspector.get_by_role("combobox", name="Search").fill(words)
    inspector.page.wait_for_timeout(500)
    if keys:
        inspector.page.keyboard.press(keys)
    idle(inspector)


def measured(inspector: Locator) -> None:
    """Make the table of node differences."""
    inspector.get_by_role("tab", name="Node differences").click()
    inspector.get_by_role("tabpanel").get_by_role("button").first.click()
    idle(inspector)


def coloured(inspector: Locator) -> None:
    """Colour by operations, which opens the legend."""
    inspector.get_by_label("Colour by").select_option("flops")
    idle(inspector)


def plain(inspector: Locator) -> None:
    """Take the colours away, and say which passes could be added."""
    inspector.get_by_label("Colour by").select_option("")
    press(inspector, "Add a pass")


def added(inspector: Locator) -> None:
    """Add a slow pass and switch it on, without waiting for it."""
    press(inspector, "Add Quantize")
    inspector.get_by_role("switch", name="Quantize").click()
    inspector.get_by_role("button", name="Cancel").wait_for()


def previewed(inspector: Locator) -> None:
    """Show everything again, and what a pass would do."""
    inspector.get_by_role("combobox", name="Search").fill("")
    inspector.locator(".fxi-graph").press("Escape")
    idle(inspector)
    press(inspector, "Preview Merge linears")


def compared(inspector: Locator) -> None:
    """Show what the first pass has changed, as one graph."""
    inspector.get_by_role("combobox", name="Compare with").select_option("below")
    idle(inspector)


def beside(inspector: Locator) -> None:
    """Show both stages side by side, and a merged linear with what it stands for."""
    press(inspector, "Side by side")
    search(inspector, "query_key_value_merged", "Enter")


def alone(inspector: Locator) -> None:
    """Show the stage alone, and the changed nodes."""
    press(inspector, "One graph")
    inspector.get_by_role("combobox", name="Compare with").select_option("")
    idle(inspector)
    inspector.get_by_role("tab", name="Changed nodes").click()
    inspector.get_by_role("tabpanel").get_by_role("button").first.click()
    idle(inspector)


def failed(inspector: Locator) -> None:
    """Give up waiting, and switch on a pass that raises."""
    inspector.get_by_role("button", name="Cancel").click()
    idle(inspector)
    switch(inspector, "Drop head")


def narrow(inspector: Locator) -> None:
    """Show it in a narrow window, without the message."""
    inspector.get_by_role("alert").get_by_role("button").click()
    inspector.page.set_viewport_size({"width": 800, "height": 1050})


STATES: dict[str, Callable[[Locator], None]] = {
    "model": lambda i: None,
    "node": lambda i: search(i, "embeddings_word_embeddings", "Enter"),
    "fields": lambda i: search(i, ""),
    "found": lambda i: search(i, "op:call_module class:Attention", "Shift+Enter"),
    "preview": previewed,
    "pass": lambda i: press(i, "Apply"),
    "compared": compared,
    "beside": beside,
    "stages": alone,
    "differences": measured,
    "colours": coloured,
    "add": plain,
    "busy": added,
    "failed": failed,
    "narrow": narrow,
}
"""What a person does to get to each state from the one before."""


if __name__ == "__main__":
    main()
