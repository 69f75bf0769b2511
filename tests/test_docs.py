"""The site builds without a warning and without asking the network, and what it names is there."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import fxlab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']+""")
"""Elements for which a browser would ask another host. A link that is clicked is not among them."""

KINDS = (
    "index.html", "start.html", "gallery.html", "real_data.html", "notebooks/quickstart.html",
    "reference/fxlab.Session.html", "search.html",
)  # fmt: skip
"""A page of each kind that the site has."""
OF_SPHINX = ("definition-list",)
"""Rules that Sphinx's own markup breaks: it writes the parameters of a long signature as a list of terms."""


def built(target: Path, *options: str) -> Path:
    always = ["--fail-on-warning", "--keep-going", "--quiet", "-D", "nb_execution_mode=off", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *always, *options, ROOT / "docs", target]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site without its theme, which takes half of the time for the list of pages beside each."""
    return built(tmp_path_factory.mktemp("plain"), "-D", "html_theme=basic")


@pytest.fixture(scope="module")
def themed_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


@pytest.mark.weekly
def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()


@pytest.mark.weekly
def test_the_site_loads_nothing_from_elsewhere(themed_site: Path) -> None:
    for page in themed_site.glob("*.html"):
        assert not LOADED.findall(page.read_text())
    for sheet in themed_site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", sheet.read_text())


@pytest.mark.weekly
def test_axe_finds_nothing_wrong_with_a_page_of_each_kind(themed_site: Path, browser: Any) -> None:
    """Light and dark, wide and narrow: two of the four for each page, so that neighbours have all."""
    from accessibility import violations

    wide, narrow = ("light", "dark"), ("dark", "light")
    found = {}
    for number, name in enumerate(KINDS):
        for width, schemes in ((1280, wide), (390, narrow)):
            scheme = schemes[number % 2]
            viewport = {"width": width, "height": 800}
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            page.goto((themed_site / name).as_uri())
            wrong = violations(page, "body", without=OF_SPHINX)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wrong.append("scrolls sideways")
            if wrong:
                found[name, scheme, width] = wrong
            page.close()
    assert found == {}


@pytest.mark.weekly
def test_every_public_name_has_a_page_in_the_reference(site: Path) -> None:
    reference = (site / "reference.html").read_text()
    names = [name for name in fxlab.__all__ if name != "__version__"]
    for name in names:
        assert f'href="reference/fxlab.{name}.html#' in reference
        assert f'id="fxlab.{name}"' in (site / "reference" / f"fxlab.{name}.html").read_text()


@pytest.mark.weekly
def test_every_notebook_is_in_the_site(site: Path) -> None:
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").exists()


def test_every_name_of_the_reference_is_there() -> None:
    text = (ROOT / "docs/reference.md").read_text()
    for block in re.findall(r"^```\{names\}\n(.*?)^```$", text, flags=re.M | re.S):
        for name, members in re.findall(r"^(?!PASSES$)([\w.]+)(?:: (.+))?$", block, flags=re.M):
            value = resolve_name(f"fxlab.{name}")
            source = inspect.getsource(value) if members else ""  # where attributes of objects are
            for member in filter(None, members.split(", ")):
                assert hasattr(value, member) or f"self.{member} = " in source or f"{member}: " in source


def test_the_gallery_shows_the_reports_that_are_made_for_it() -> None:
    shown = re.findall(r'<iframe src="gallery/(\w+)\.html"', (ROOT / "docs/gallery.md").read_text())
    made = re.findall(r'^    "(\w+)": ', (ROOT / "docs/make_gallery.py").read_text(), flags=re.M)
    assert shown == made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_make_targets_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", text, flags=re.M)) <= targets
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_code_is_python_that_is_run_or_toml_that_is_valid(page: Path) -> None:
    for language, code in re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", page.read_text(), flags=re.M | re.S):
        assert language in ("python", "toml", "text") or language.startswith("{"), language
        if language == "toml":
            tomllib.loads(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_reader_does_not_see_is_nothing_that_examples_need(page: Path) -> None:
    """Whoever copies the blocks of a page in order runs what the tests run."""
    hidden = re.findall(
        r"^<!--- invisible-code-block: python\n(.*?)^--->$", page.read_text(), flags=re.M | re.S
    )
    for block in hidden:
        for statement in ast.parse(block).body:
            assert isinstance(statement, ast.Assert | ast.Expr | ast.With | ast.Import), block
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            assert set(names) <= {"torch", "warnings"}, block
