"""The measurements that are published: rows of ``docs/measured.md``, and CSV files in ``docs/measured/``.

A command refreshes its own row: the figure, the date and the versions. The row is found by its command. All
other words of the page are written by hand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"
FIGURE, COMMAND, DATE = 1, 2, 3
"""Columns of the table."""


def write(
    command: str,
    figure: str,
    tables: Mapping[str, pd.DataFrame],
    *,
    made_with: str | None = None,
    page: Path = PAGE,
) -> None:
    """Write the tables of a command, and refresh its row.

    Parameters
    ----------
    command
        The command, as the page has it.
    figure
        The result in a few words.
    tables
        Tables by the names of their files.
    made_with
        Packages and versions; those of torch and transformers by default.
    page
        The page; its tables are in a folder of the same name.

    Raises
    ------
    ValueError
        If the page has no row for the command.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    cell = [f"`{command}`"]
    places = [place for place, line in enumerate(lines) if _cells(line)[COMMAND : COMMAND + 1] == cell]
    if len(places) != 1:
        raise ValueError(f"{page.name} has {len(places)} rows for `{command}`. Write one row for it by hand.")
    cells = _cells(lines[places[0]])
    cells[FIGURE] = figure
    cells[DATE] = f"{time.strftime('%Y-%m-%d')}, {made_with or versions('torch', 'transformers')}"
    lines[places[0]] = f"| {' | '.join(cells)} |"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, table in tables.items():
        file(name, page).parent.mkdir(exist_ok=True)
        table.to_csv(file(name, page), index=False, float_format="%.4g", lineterminator="\n")


def merged(name: str, rows: pd.DataFrame, key: str, page: Path = PAGE) -> pd.DataFrame:
    """Return a stored table in which rows take the place of those with the same key."""
    path = file(name, page)
    if not path.exists():
        return rows
    stored = pd.read_csv(path, keep_default_na=False)
    return pd.concat([stored[~stored[key].isin(rows[key])], rows], ignore_index=True)


def file(name: str, page: Path = PAGE) -> Path:
    """Return the file of a table."""
    return page.with_suffix("") / f"{name}.csv"


def versions(*names: str) -> str:
    """Return packages with their versions, in words."""
    return ", ".join(f"{name} {version(name).partition('+')[0]}" for name in names)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
