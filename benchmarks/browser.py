"""The Chromium that pages are measured in."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-unsafe-swiftshader"]


def chromium(playwright: Playwright) -> Browser:
    """Start the Chromium that is installed, or that ``FXLAB_CHROMIUM`` names."""
    known = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("FXLAB_CHROMIUM") or next(filter(None, map(shutil.which, known)), None)
    if path is None:
        raise SystemExit("This needs Chromium: apt-get install chromium, or set FXLAB_CHROMIUM to its path.")
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
