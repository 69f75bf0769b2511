"""Every notebook runs from top to bottom, and is stored with what it shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import trained

pytestmark = pytest.mark.slow

MOST_BYTES = 300_000
MACHINE = re.compile(
    r"/(?:home|root|tmp|work|Users|usr|var)/\S*| at 0x\w+|\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b"
)
"""Folders and addresses of a process, days and times."""
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


ASKING_FOR_MORE = ("judge_trained_weights",)
"""Those that ask for packages: they run in the environment of ``benchmarks.trained``, weekly."""
LONG = (
    *("quickstart", "from_switch_to_production", "too_big_for_the_machine", "what_torch_compile_does"),
    *("judge_on_real_data", "quantize_and_leave_out", "a_training_step", "find_a_bug"),
)
"""Those that take longest; the first of them is run by the tests in a browser."""

IN_FORKS = """
import json, os, sys, traceback
import torch, transformers
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

def run(path):
    os.chdir(os.path.dirname(path))
    shell, shown = InteractiveShell(), ""
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            with capture_output() as captured:
                shell.run_cell("".join(cell["source"])).raise_error()
            # A torch for GPUs says so where there is none.
            if captured.stderr and "No CUDA runtime is found" not in captured.stderr:
                raise RuntimeError(captured.stderr)
            shown += captured.stdout
    assert shown

for path in sys.argv[1:]:
    if os.fork() == 0:
        try:
            run(path)
        except BaseException:
            print(path, traceback.format_exc(), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if os.wait()[1]:
        sys.exit("the notebook above failed")
"""


@pytest.mark.weekly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each notebook runs in a fork of one process")
def test_short_notebooks_run_without_errors_or_warnings():
    short = [str(path) for path in NOTEBOOKS if path.stem not in (*LONG, *ASKING_FOR_MORE)]
    ran = subprocess.run(
        [sys.executable, "-c", IN_FORKS, *short], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.weekly
def test_notebooks_that_ask_for_packages_run_where_these_are():
    paths = [str(path) for path in NOTEBOOKS if path.stem in ASKING_FOR_MORE]
    command = [trained.python(), "-c", IN_FORKS, *paths]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.weekly
@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.stem not in ASKING_FOR_MORE], ids=lambda path: path.stem
)
def test_the_notebook_runs_without_errors_or_warnings_in_a_kernel(path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert outputs
    complaints = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not [text for text in complaints if "No CUDA runtime is found" not in text]


def test_there_is_a_quickstart():
    assert "quickstart" in [path.stem for path in NOTEBOOKS]


def code_cells(path: Path) -> list[dict]:
    # By json: nbformat takes two seconds to import.
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def stored_outputs(path: Path) -> list[dict]:
    return [output for cell in code_cells(path) for output in cell["outputs"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_stored_as_it_was_run_from_top_to_bottom(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any("error" in (output["output_type"], output.get("name")) for output in stored_outputs(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_is_shown_without_a_kernel_and_small(path):
    kinds = {kind for output in stored_outputs(path) for kind in output.get("data", ())}
    assert kinds <= {"text/plain", "text/html", "image/png"}
    assert path.stat().st_size <= MOST_BYTES
    assert "widgets" not in json.loads(path.read_text("utf-8"))["metadata"]
    shows = any(re.search(r"inspect\(|draw\(", "".join(cell["source"])) for cell in code_cells(path))
    assert shows == ("image/png" in kinds)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_says_nothing_of_a_machine_or_a_day(path):
    for output in stored_outputs(path):
        data = output.get("data", {})
        for text in (output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")):
            assert not MACHINE.findall("".join(text))
