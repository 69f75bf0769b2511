"""Run the notebooks and store what they show: ``make notebooks``; some are named as arguments.

What is stored is what GitHub shows: text, tables, and a picture of each inspector and drawing, without the
state of widgets. The site runs the notebooks anew when it is built, and has their live pages.
"""

from __future__ import annotations

import base64
import io
import re
import sys
import time

import nbformat
from make_pictures import ROOT, launched
from nbclient import NotebookClient
from PIL import Image
from playwright.sync_api import Browser

from fxlab.notebook.static_view import IN_PLACE_OF_THE_PAGE

NOTEBOOKS = ROOT / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
MOST_BYTES = 300_000
"""Of a notebook."""
WIDTH, HEIGHT, COLOURS = 1000, 1000, 64
"""Of a picture, which ends where it would be higher."""
PAGE = "<!doctype html><body style='margin:0;background:#fff;font:14px system-ui'><main>{}</main></body>"
OF_THIS_MACHINE = re.compile(r" at 0x[0-9a-f]+|/[^\s<>\"']*?/(?:site-packages|lib/python3\.\d+)/")
"""Addresses of objects, and folders of installed files."""


def main(names: list[str]) -> None:
    """Run all notebooks, or those that are named."""
    with launched() as browser:
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            if names and path.stem not in names:
                continue
            started = time.monotonic()
            notebook = nbformat.read(path, as_version=4)
            NotebookClient(
                notebook,
                timeout=600,
                record_timing=False,
                store_widget_state=False,
                resources={"metadata": {"path": str(NOTEBOOKS)}},
            ).execute()
            seconds = time.monotonic() - started
            for cell in notebook.cells:
                outputs = [one for one in cell.get("outputs", ()) if WIDGET not in one.get("data", {})]
                for output in outputs:
                    make_plain(output, browser)
                if "outputs" in cell:
                    cell.outputs = outputs
            notebook.metadata.pop("widgets", None)
            nbformat.write(notebook, path)
            size = path.stat().st_size
            print(f"{path.stem}: {seconds:.0f} s, {size:,} bytes", flush=True)
            assert size <= MOST_BYTES, path


def make_plain(output: nbformat.NotebookNode, browser: Browser) -> None:
    """Leave of an output what is shown without scripts, and nothing of this machine."""
    if "text" in output:
        output.text = OF_THIS_MACHINE.sub("", output.text)
    data = output.get("data", {})
    for kind in data.keys() & {"text/plain", "text/html"}:
        data[kind] = OF_THIS_MACHINE.sub("", data[kind])
    drawn = data.pop("image/svg+xml", None)
    html = data.get("text/html", "")
    if IN_PLACE_OF_THE_PAGE in html or "<svg" in html:  # which GitHub would leave out
        drawn = data.pop("text/html")
    if drawn is not None:
        data["image/png"] = base64.b64encode(picture(drawn, browser)).decode()


def picture(html: str, browser: Browser) -> bytes:
    """Return a small picture of what a browser shows of a piece of HTML."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 600})
    page.set_content(PAGE.format(html))
    shot = Image.open(io.BytesIO(page.locator("main").screenshot()))
    shot = shot.crop((0, 0, shot.width, min(shot.height, HEIGHT)))
    page.close()
    file = io.BytesIO()
    shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
