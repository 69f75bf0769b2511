"""The page of measurements: rows that commands refresh, and tables that it links to."""

from __future__ import annotations

import ast
import importlib
import re
import time
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import measured

ROOT = Path(__file__).parents[1]
TABLE = """# Measured

| Measured | Figure | Command | Date, with |
|---|---|---|---|
| Some models ([rows](page/some.csv)) | old | `make some` | 2020-01-01, torch 1.0 |
| Others | kept | `make others` | 2020-01-02, torch 1.0 |

Words.
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(TABLE)
    return path


def test_a_command_refreshes_its_own_row_and_writes_its_tables(page: Path) -> None:
    rows = pd.DataFrame({"model": ["a", "b"], "ratio": [1 / 3, 2.0]})
    measured.write("make some", "2 models", {"some": rows}, made_with="torch 2.0", page=page)
    old = "| Some models ([rows](page/some.csv)) | old | `make some` | 2020-01-01, torch 1.0 |"
    today = time.strftime("%Y-%m-%d")
    new = f"| Some models ([rows](page/some.csv)) | 2 models | `make some` | {today}, torch 2.0 |"
    assert page.read_text() == TABLE.replace(old, new)
    assert (page.parent / "page" / "some.csv").read_text() == "model,ratio\na,0.3333\nb,2\n"


def test_a_command_without_a_row_is_an_error_and_writes_nothing(page: Path) -> None:
    with pytest.raises(ValueError, match="has 0 rows for `make none`"):
        measured.write("make none", "", {"none": pd.DataFrame({"a": [1]})}, page=page)
    assert page.read_text() == TABLE
    assert not (page.parent / "page").exists()


def test_rows_of_one_task_take_the_place_of_its_old_ones(page: Path) -> None:
    both = pd.DataFrame({"task": ["base", "heads"], "models": [1, 2]})
    measured.write("make some", "", {"some": both}, page=page)
    found = measured.merged("some", pd.DataFrame({"task": ["base"], "models": [3]}), "task", page)
    assert found.to_dict("list") == {"task": ["heads", "base"], "models": [2, 3]}


def test_every_table_is_linked_and_every_command_exists() -> None:
    text = measured.PAGE.read_text()
    linked = set(re.findall(r"\]\(measured/(\w+)\.csv\)", text))
    assert linked == {path.stem for path in measured.PAGE.with_suffix("").iterdir()}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for command in re.findall(r"^\|(?:[^|]*\|){2} `([^`]+)` \|", text, flags=re.M):
        if command.startswith("make "):
            assert command.split()[1] in targets
        else:
            module = command.removeprefix("python -m ").replace(".", "/")
            script = (ROOT / f"{module}.py").read_text()
            assert re.search(rf'measured\.write\(\s*"{re.escape(command)}"', script), command


def test_benchmarks_import_what_there_is() -> None:
    found = (
        (node.module, alias.name)
        for file in (ROOT / "benchmarks").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fxlab"
        for alias in node.names
    )
    for module, name in set(found):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
