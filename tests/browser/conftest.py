from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
# A kernel that compares outputs answers a click after that: seconds, where other tests use the cores.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[object]:
    """A JupyterLab that serves a copy of ``notebooks/``, and pages of tests; tests write their own beside."""
    from jupyter_lab import JupyterLab
    from webview_page import STATIC

    folder = tmp_path_factory.mktemp("lab")
    notebooks, state = folder / "notebooks", folder / "state"
    state.mkdir()
    shutil.copytree(ROOT / "notebooks", notebooks, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    with JupyterLab(notebooks, state, (ROOT,), STATIC) as running:
        yield running


@pytest.fixture(scope="session")
def only_page(browser: Browser, lab: object) -> Iterator[object]:
    from lab_page import LabPage

    context = browser.new_context()
    yield LabPage(context.new_page(), lab.url)  # type: ignore[attr-defined]
    context.close()


@pytest.fixture(scope="module")
def lab_page(only_page: object) -> Iterator[object]:
    """The page of all modules, one after the other; none may ask another host, or raise an error."""
    page: Any = only_page
    page.page.set_viewport_size({"width": 1600, "height": 1050})
    page.requested_hosts.clear()
    page.page_errors.clear()
    yield page
    assert page.requested_hosts <= {"127.0.0.1"}
    assert page.page_errors == []
