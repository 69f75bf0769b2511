from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def _missing(what: str) -> None:
    """On a developer's machine a missing browser is no failure; on CI it is."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def chromium() -> str:
    found = os.environ.get("FXLAB_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if not found:
        _missing(
            "The browser tests need Chromium: apt-get install chromium, or set FXLAB_CHROMIUM to its path."
        )
    assert found is not None
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[object]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        _missing("The browser tests need the playwright package: pip install --group test.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS, headless=True)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[object]:
    """A JupyterLab that serves a copy of ``notebooks/``, and pages of tests; tests write their own beside."""
    from jupyter_lab import JupyterLab
    from webview_page import STATIC

    folder = tmp_path_factory.mktemp("lab")
    notebooks, state = folder / "notebooks", folder / "state"
    state.mkdir()
    shutil.copytree(ROOT / "notebooks", notebooks, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    with JupyterLab(notebooks, state, (ROOT,), STATIC) as running:
        yield running


@pytest.fixture(scope="module")
def lab_page(browser: object, lab: object) -> Iterator[object]:
    """A page; afterwards it must have asked no host but this one, and raised no error."""
    from lab_page import LabPage

    context = browser.new_context(viewport={"width": 1600, "height": 1050})  # type: ignore[attr-defined]
    page = LabPage(context.new_page(), lab.url)  # type: ignore[attr-defined]
    yield page
    context.close()
    assert page.requested_hosts == {"127.0.0.1"}
    assert page.page_errors == []
