"""The golden vectors, to which ``frontend/tests/golden.test.ts`` holds the page, are what Python says now."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from golden.make import FOLDER, TRANSFORMERS, numbers, vectors
from golden.models import MODELS

HINT = "If the change is meant, make them anew: .venv/bin/python tests/golden/make.py"


def constrained(package: str) -> str:
    lines = (Path(__file__).parents[1] / "constraints.txt").read_text().splitlines()
    return next(line.partition("==")[2].strip() for line in lines if line.startswith(f"{package}=="))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_vectors_are_what_python_says_now(name: str) -> None:
    packages = ("torch", "transformers") if name in TRANSFORMERS else ("torch",)
    for package in packages:
        if version(package).partition("+")[0] != constrained(package).partition("+")[0]:
            pytest.skip(f"another {package} than that of constraints.txt, which makes other graphs")
    now, kept = vectors(name), (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    # Line by line: a file that differs is large.
    changed = [pair for pair in zip(kept.splitlines(), now.splitlines(), strict=False) if pair[0] != pair[1]]
    assert changed == [], HINT
    assert len(now) == len(kept), HINT


def test_numbers_are_written_as_they_are_kept() -> None:
    assert numbers() == (FOLDER / "numbers.json").read_text(encoding="utf-8"), HINT
