"""Do what a stranger does: install the wheel where there is no clone, copy every example, run the notebooks.

``make stranger`` builds the wheel, makes an environment in ``build/stranger``, and runs there the Python
blocks of README and docs in order, each page in a process of its own, and all notebooks. Prints a line for
each and ends with an error if anything fails.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "stranger"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TOOLS = ("nbclient", "ipykernel", "pytest", "attacut", "babel")
"""What runs the notebooks, and what one of them asks for; and pages show tests of a reader's own pass."""


def main() -> int:
    """Install and run everything; return how many pages and notebooks failed."""
    shutil.rmtree(PLACE, ignore_errors=True)
    pages, notebooks = PLACE / "pages", PLACE / "notebooks"
    pages.mkdir(parents=True)
    shutil.copytree(ROOT / "notebooks", notebooks)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if BLOCK.search(page.read_text(encoding="utf-8")):
            shutil.copy(page, pages)
    shutil.copy(__file__, PLACE)
    python = install()
    failed = 0
    for file in (*sorted(pages.iterdir()), *sorted(notebooks.glob("*.ipynb"))):
        started = time.monotonic()
        run = subprocess.run(
            [python, "-P", PLACE / Path(__file__).name, file],
            cwd=file.parent,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True,
            text=True,
        )
        word = "ok" if run.returncode == 0 else "FAILED"
        print(f"{word:6} {file.name} ({time.monotonic() - started:.0f} s)", flush=True)
        if run.returncode != 0:
            failed += 1
            print(run.stdout[-3000:], run.stderr[-3000:], flush=True)
    print(f"{failed} of them failed" if failed else "Nothing failed.")
    return failed


def install() -> Path:
    """Build the wheel and install it in an environment of its own."""
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    pinned = ("--constraint", str(ROOT / "constraints.txt"))
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", PLACE, ROOT], check=True)
    (wheel,) = PLACE.glob("fxlab-*.whl")
    subprocess.run([sys.executable, "-m", "venv", PLACE / "env"], check=True)
    python = PLACE / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    # torch first and by itself: its pinned version is a wheel for the CPU.
    subprocess.run([python, *pip, "install", *pinned, "torch"], check=True)
    whole = f"{wheel}[notebook,transformers]"
    subprocess.run([python, *pip, "install", *pinned, whole, *TOOLS], check=True)
    subprocess.run([python, *pip[:2], "check"], check=True)
    subprocess.run([python, "-P", "-m", "fxlab", "doctor"], cwd=PLACE, check=True)
    return python


def run_page(page: Path) -> int:
    """Run what is on a page as if it were typed, block by block; return how many examples failed."""
    # A module, as Dynamo reads the variables around a function from the module that the function names.
    sys.modules[page.stem] = module = ModuleType(page.stem)
    names: dict[str, Any] = vars(module)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
        name = f"{page.name}, block {number}"
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, {}, name, str(page), 0)
            test.globs = names
            runner.run(test, clear_globs=False)
        else:
            exec(compile(block, name, "exec"), names)
    return runner.failures


def run_notebook(path: Path) -> int:
    """Run a notebook from top to bottom."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(min(main(), 1))
    warnings.simplefilter("ignore")
    given = Path(sys.argv[1])
    sys.exit(run_notebook(given) if given.suffix == ".ipynb" else min(run_page(given), 1))
