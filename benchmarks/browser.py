"""The Chromium that pages are measured in."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Playwright

LIMIT = 60
"""Seconds after which a picture is given up."""

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-unsafe-swiftshader"]


def chromium(playwright: Playwright) -> Browser:
    """Start the Chromium that is installed, or that ``FXLAB_CHROMIUM`` names."""
    known = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("FXLAB_CHROMIUM") or next(filter(None, map(shutil.which, known)), None)
    if path is None:
        raise SystemExit("This needs Chromium: apt-get install chromium, or set FXLAB_CHROMIUM to its path.")
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS)


@contextlib.contextmanager
def tab_of(browser: Browser) -> Iterator[Any]:
    """Open a tab, and close it."""
    tab = browser.new_page(viewport={"width": 1500, "height": 950})
    tab.set_default_timeout(LIMIT * 1000)
    try:
        yield tab
    finally:
        tab.close()
