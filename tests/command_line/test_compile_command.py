"""``fxlab compile``: a script runs as it does without, and what torch.compile made of it is reported."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

BREAKS = """
import sys
import torch
import beside

def breaks(x):
    y = torch.relu(x) + beside.ONE
    print("<b>here</b>")
    return torch.sigmoid(y)

if __name__ == "__main__":
    print(sys.argv, __file__)
    with torch.no_grad():
        torch.compile(breaks, backend="eager")(torch.ones(2, 3))
    {end}
"""

WRONG = """
import copy
import torch
from torch._inductor.compile_fx import compile_fx
from fxlab.compiler.compiling.hooks import _without_code  # no C++ compiler is needed

def careless(graph):
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.target, node.args = torch.ops.aten.clamp_min.default, (*node.args, 0.5)

def backend(graph_module, inputs):
    eager = copy.deepcopy(graph_module)
    patches = {"post_grad_custom_post_pass": careless}
    compile_fx(graph_module, inputs, inner_compile=_without_code, config_patches=patches)
    return eager

with torch.no_grad():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    torch.compile(model, backend=backend)(torch.ones(2, 4))
"""


@pytest.fixture(autouse=True)
def no_rank(monkeypatch):
    """Write errors as Python does: a process group of other tests leaves a hook that writes its rank."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a script with this as its last line."""

    def write(end="pass", text=BREAKS):
        torch._dynamo.reset()
        (tmp_path / "beside.py").write_text("ONE = 1\n")
        path = tmp_path / "script.py"
        path.write_text(text.replace("{end}", end))
        return path

    yield write
    sys.modules.pop("beside", None)


def contents(page: Path):
    text = page.read_text(encoding="utf-8")
    found = re.search(r'id="fxlab-contents">(.*?)</script>', text, re.DOTALL)
    assert text.count('id="fxlab-session-') == len(json.loads(found[1])["graphs"])
    return json.loads(found[1])


def test_each_graph_of_an_unchanged_script_is_in_the_report(fxlab, script, tmp_path):
    path, page = script(), tmp_path / "report.html"
    argv, modules = sys.argv, sys.modules["__main__"]
    ended = fxlab("compile", path, "one", "-o", page, "--", "--two", "-o")
    assert ended.code == 0, ended.err
    assert f"{[str(path), 'one', '--two', '-o']} {path}\n<b>here</b>\n" in ended.out
    first, second = contents(page)["graphs"]
    assert [first["name"], second["name"]] == ["graph 1, inference", "graph 2, inference"]
    assert (first["verdict"], first["agrees"], first["stages"]) == ("no pass changed it", True, 1)
    assert first["ended"]["place"] == f"{path}:8"
    assert first["ended"]["code"] == 'print("<b>here</b>")'
    assert first["ended"]["what"].startswith("Graph break: ")
    assert second["ended"] is None
    assert "breaks" in ended.out[ended.out.index("story") :]
    notes = json.loads(re.search(r'id="fxlab-contents">(.*?)</script>', page.read_text(), re.DOTALL)[1])[
        "notes"
    ]
    assert not any("Failed to trace" in note for note in notes)  # that is told where the graph is listed
    assert (sys.argv, sys.modules["__main__"]) == (argv, modules)
    assert str(tmp_path) not in sys.path


def test_a_folder_has_tables_beside_the_report(fxlab, script, tmp_path):
    folder = tmp_path / "record"
    assert fxlab("compile", script(text=WRONG), "-o", folder, "--no-measure").code == 0
    assert len((folder / "graphs.csv").read_text().splitlines()) == 2
    assert "compile" in (folder / "story.csv").read_text()
    assert contents(folder / "report.html")["graphs"]


PROCESSES = """
import multiprocessing, torch

def work():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)  # torch is imported once
    child.start()
    work()
    child.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the second process is a fork of the first")
def test_processes_of_a_command_are_recorded(fxlab, tmp_path, monkeypatch):
    (tmp_path / "run.py").write_text(PROCESSES)
    monkeypatch.setenv("RANK", "3")
    ended = fxlab("compile", "-o", tmp_path / "records", "--json", "--", sys.executable, tmp_path / "run.py")
    assert (ended.code, len(json.loads(ended.out)["records"])) == (0, 2)
    folders = sorted((tmp_path / "records").iterdir())
    assert [re.sub(r"\d+$", "N", folder.name) for folder in folders] == ["rank-N", "rank-3-process-N"]
    for folder in folders:
        assert "inference" in (folder / "graphs.csv").read_text()
        assert len(contents(folder / "report.html")["graphs"]) == 1


def test_a_command_that_fails_or_compiles_nothing_says_so(fxlab, tmp_path):
    for code, status in (("raise SystemExit(3)", 6), ("import torch", 5)):
        ended = fxlab("compile", "-o", tmp_path, "--", sys.executable, "-c", code)
        assert ended.code == status
    for wrong in (("--", "no-such-command"), ("-o", tmp_path), ("--", sys.executable)):
        assert fxlab("compile", *wrong).code == 2


def test_a_pass_that_breaks_the_numbers_ends_with_1(fxlab, script, tmp_path):
    page = tmp_path / "report.html"
    ended = fxlab("compile", script(text=WRONG), "-o", page, "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["ended"], answer["report"]) == (1, "done", str(page))
    (row,) = answer["graphs"]
    assert (row["graph"], row["verdict"], row["changed"]) == (1, "different", 2)
    assert row["reason"]
    (shown,) = contents(page)["graphs"]
    assert (shown["verdict"], shown["agrees"]) == ("different", False)
    torch._dynamo.reset()
    quick = json.loads(fxlab("compile", script(text=WRONG), "--no-measure", "--json").out)
    assert [row["verdict"] for row in quick["graphs"]] == ["not judged"]
    assert quick["report"] is None


@pytest.mark.often(3)
@pytest.mark.parametrize(
    ("end", "code", "words", "printed"),
    [
        (
            "raise ValueError('no <i>luck</i>')",
            6,
            "raised ValueError: no <i>luck</i>",
            "ValueError: no <i>luck",
        ),
        ("raise KeyboardInterrupt", 130, "raised KeyboardInterrupt", "KeyboardInterrupt"),
        ("sys.exit(3)", 6, "ended with status 3", ""),
        ("sys.exit('bye')", 6, "ended: bye", "bye\n"),
        ("sys.exit(0)", 0, "done", ""),
    ],
)
def test_however_a_script_ends_what_it_had_compiled_is_reported(
    fxlab, script, tmp_path, end, code, words, printed
):
    page = tmp_path / "report.html"
    ended = fxlab("compile", script(end), "-o", page, "--no-measure", "--json")
    assert ended.code == code
    answer = json.loads(ended.out)  # what the script prints is elsewhere
    assert (answer["ended"], answer["report"]) == (words, str(page))
    assert printed in ended.err
    assert ("Traceback" in ended.err) == (end.startswith("raise"))
    if end.startswith("raise"):  # as without fxlab: the frames of the script alone
        shown = ended.err[ended.err.index("Traceback") :].splitlines()
        assert shown[1].startswith(f'  File "{tmp_path / "script.py"}", line')
    notes = contents(page)["notes"]
    assert any(words in note for note in notes) == (words != "done")


def test_what_compiles_nothing_has_no_report(fxlab, tmp_path):
    (tmp_path / "script.py").write_text("print('nothing')\n")
    ended = fxlab("compile", tmp_path / "script.py", "-o", tmp_path / "report.html")
    assert ended.code == 5
    assert "Nothing was compiled and run" in ended.out
    assert not (tmp_path / "report.html").exists()


def test_a_module_is_run_as_python_m_does(fxlab, tmp_path, monkeypatch):
    (tmp_path / "run_me_as_main.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(1)")
    monkeypatch.chdir(tmp_path)
    ended = fxlab("compile", "-m", "run_me_as_main", "--", "-x")
    assert ended.code == 6
    assert "__main__ ['-x']" in ended.out


def test_a_script_that_is_no_python_is_shown_as_python_shows_it(fxlab, tmp_path):
    (tmp_path / "script.py").write_text("def f(:\n")
    ended = fxlab("compile", tmp_path / "script.py")
    assert ended.code == 6
    assert ended.err.lstrip().startswith(f'File "{tmp_path / "script.py"}", line 1')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such.py"], "there is no file no_such.py"),
        (
            ["script.py", "--epochs", "3"],
            "unrecognized arguments: --epochs 3; put those of the script behind --",
        ),
        (["script.py", "-o", "report.pdf"], "ends in .html"),
    ],
)
def test_wrong_arguments_are_said_before_anything_runs(fxlab, arguments, words):
    ended = fxlab("compile", *arguments)
    assert ended.code == 2
    assert words in ended.err


RECOMPILES = """
import torch

def scaled(x, factor):
    return x * factor

def several(x):
    for _ in range(2):
        print(end="")
        x = x + 1
    return x

compiled = torch.compile(scaled, backend="eager", dynamic=False)
compiled(torch.ones(2), 2)
compiled(torch.ones(3), 2)
torch.compile(several, backend="eager")(torch.ones(2))
"""


def test_the_story_is_told_before_the_list_of_graphs(fxlab, script, tmp_path):
    path, page = script(text=RECOMPILES), tmp_path / "report.html"
    ended = fxlab("compile", path, "-o", page, "--json")
    story = json.loads(ended.out)["story"]
    assert [row["kind"] for row in story] == ["compile", "recompile", "compile", "skip"]
    assert story[1]["reason"].endswith("expected 2, actual 3 (compile 2 of scaled)")
    words = "Dynamo's story has 1 recompile, 1 skip: record.story() lists them."
    assert contents(page)["notes"][1:] == [words]


def test_a_script_whose_functions_are_all_left_to_python_has_a_story(fxlab, script):
    text = RECOMPILES.partition("compiled = ")[0] + 'torch.compile(several, backend="eager")(torch.ones(2))\n'
    ended = fxlab("compile", script(text=text), "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["graphs"]) == (0, [])
    assert [row["kind"] for row in answer["story"]] == ["compile", "skip"]
