"""Make the pictures of README and docs: ``python docs/make_pictures.py``.

``images/parts.svg`` is drawn from ``parts.dot``. ``images/inspector.webp`` shows passes that are switched on
and off, and ``images/inspector.png`` one moment of it; ``images/preview.png`` and
``images/side-by-side.png`` show a pass before and after it is applied. They are recorded in a JupyterLab in
headless Chromium, as the browser tests run it; ``images/report.png`` in a page of the same browser. They are
kept in git, as not everybody who reads them has a browser to record with.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pygraphviz
import torch
from PIL import Image
from playwright.sync_api import Locator

import fxlab

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "browser", "drawing")]

from drawing_models import Bert  # noqa: E402
from headless_chromium import launched  # noqa: E402
from jupyter_lab import JupyterLab  # noqa: E402
from lab_page import LabPage  # noqa: E402

CELL = """
import torch
from transformers import BertConfig, BertModel

import fxlab

torch.manual_seed(0)
passes = [fxlab.MergeLinears(), fxlab.FuseAttention(), fxlab.FuseBiasInLinear()]
fxlab.inspect(fxlab.Session(BertModel(BertConfig(attn_implementation="eager")).eval(), passes=passes))
"""
STEPS = (
    ("", 1800),
    ("Merge linears", 2600),
    ("Fuse attention", 2600),
    ("Merge linears", 2200),
    ("Fuse attention", 1800),
)
"""Which switch is clicked, and for how many milliseconds the result is shown."""
WIDTH, MOST_BYTES = 1000, 1_500_000


def draw_parts() -> None:
    """Lay the parts out with the Graphviz of pygraphviz."""
    graph = pygraphviz.AGraph(string=(ROOT / "docs" / "parts.dot").read_text())
    svg = graph.draw(format="svg", prog="dot").decode()
    (IMAGES / "parts.svg").write_text(re.sub(r"<!--.*?-->\n?", "", svg, flags=re.S))


@contextmanager
def notebook(cell: str) -> Iterator[LabPage]:
    """Run a cell in a JupyterLab in headless Chromium, until its inspector is there."""
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        notebooks, state = Path(folder, "notebooks"), Path(folder, "state")
        notebooks.mkdir()
        state.mkdir()
        with JupyterLab(notebooks, state, (ROOT,)) as lab:
            lab.write("picture.ipynb", cell)
            page = LabPage(browser.new_context(viewport={"width": 1600, "height": 1050}).new_page(), lab.url)
            page.open("picture.ipynb")
            page.run_all()
            page.inspector()
            page.wait_until_idle()
            yield page


def record_inspector() -> None:
    """Click through the steps and keep a frame of each."""
    with notebook(CELL) as page:
        frames = [frame(page, page.inspector(), switch) for switch, _ in STEPS]
        record_preview(page, page.inspector())
    frames[1].save(IMAGES / "inspector.png", optimize=True)
    size = WIDTH, frames[0].height * WIDTH // frames[0].width
    first, *others = [each.resize(size, Image.Resampling.LANCZOS) for each in frames]
    target = IMAGES / "inspector.webp"
    shown = [milliseconds for _, milliseconds in STEPS]
    first.save(target, save_all=True, append_images=others, duration=shown, loop=0, quality=80, method=6)
    assert target.stat().st_size < MOST_BYTES


def record_preview(page: LabPage, inspector: Locator) -> None:
    """Preview a pass, apply it, and select a node that it made beside the original."""
    inspector.get_by_role("button", name="Preview Merge linears").click()
    frame(page, inspector).save(IMAGES / "preview.png", optimize=True)
    inspector.get_by_role("button", name="Apply").click()
    page.settle(inspector)
    inspector.get_by_role("button", name="Side by side").click()
    page.settle(inspector)
    inspector.get_by_role("combobox", name="Search").fill("query_key_value_merged")
    page.page.keyboard.press("Enter")
    frame(page, inspector).save(IMAGES / "side-by-side.png", optimize=True)


def record_report() -> None:
    """Write a report with two passes on, and show both stages as one graph."""
    torch.manual_seed(0)
    tokens, mask = torch.arange(6).reshape(2, 3), torch.ones(3, 3)
    session = fxlab.Session(fxlab.symbolic_trace(Bert().eval(), (tokens, mask)), (tokens, mask))
    session.apply("merge-linears")
    session.apply("change-true-div-to-mul-by-inverse")
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.goto(fxlab.report(session, path=Path(folder, "report.html")).as_uri())
        page.get_by_role("combobox", name="Compare with").select_option("0")
        page.get_by_role("combobox", name="Search").fill("query_key_value_merged")
        page.keyboard.press("Enter")
        page.wait_for_timeout(1000)
        page.get_by_text("Legend").click()
        page.locator(".fxi-header").hover()
        page.wait_for_timeout(2000)
        shown = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shown.quantize(128).save(IMAGES / "report.png", optimize=True)


def frame(page: LabPage, inspector: Locator, switch: str = "") -> Image.Image:
    """Click on a switch, wait until all has answered, and return what is to be seen."""
    if switch:
        inspector.get_by_role("switch", name=switch).click()
    page.settle(inspector)
    inspector.locator(".fxi-header").hover()
    page.page.wait_for_timeout(1000)
    return Image.open(io.BytesIO(inspector.screenshot())).convert("RGB")


if __name__ == "__main__":
    draw_parts()
    record_inspector()
    record_report()
