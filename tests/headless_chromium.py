"""Chromium without a window, from the system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def missing(what: str) -> NoReturn:
    """Skip on a developer's machine, and fail on CI."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def chromium_path() -> str:
    """Return where Chromium is; a test that asks is skipped without it, on CI it fails."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("FXLAB_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    return found or missing(
        "The browser tests need Chromium: apt-get install chromium, or set FXLAB_CHROMIUM to its path."
    )


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a browser and close it at the end; meanwhile no other event loop can run in this thread."""
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, headless=True)
        yield browser
        browser.close()
