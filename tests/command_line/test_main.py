"""The command as a whole: how it is started, and how it ends."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

import fxlab as package
from fxlab.command_line.answer import ExitCode
from fxlab.command_line.commands import report, trace
from fxlab.command_line.main import command_parser

pytestmark = pytest.mark.slow

PYTHON_M = [sys.executable, "-m", "fxlab"]


def test_help_and_version_need_neither_torch_nor_pandas():
    code = (
        "import sys, contextlib, fxlab.command_line\n"
        "for word in ('--help', '--version'):\n"
        "    with contextlib.suppress(SystemExit): fxlab.command_line.main([word])\n"
        "print({'torch', 'pandas', 'transformers'} & sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "exit codes: 0 done" in ran.stdout
    assert f"fxlab {package.__version__}" in ran.stdout
    assert ran.stdout.endswith("set()\n")


@pytest.mark.weekly
def test_as_a_module_it_prints_results_alone_on_stdout():
    arguments = ["trace", "torch.nn:Identity", "--inputs", "2x4", "--json", "--no-check"]
    ran = subprocess.run([*PYTHON_M, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["traced_on"] == "dynamic shapes"


def test_an_interrupt_ends_it_with_130_and_without_a_traceback(config_file):
    process = subprocess.Popen(
        [*PYTHON_M, "trace", config_file, "--batch-size", "3000"], stderr=subprocess.PIPE, text=True
    )
    while "torch" not in _maps(process.pid):  # importing took over, so main is what handles the signal
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().endswith("fxlab: interrupted")
    assert "Traceback" not in err


def _maps(pid):
    with open(f"/proc/{pid}/maps") as maps:
        return maps.read()


@pytest.mark.weekly
def test_a_reader_that_is_gone_is_no_error():
    command = " ".join([*PYTHON_M, "trace", "torch.nn:Identity", "--inputs", "2x4", "--no-check"])
    ran = subprocess.run(
        f"{command} | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0
    assert "Error" not in ran.stderr


def test_every_exit_code_is_told_by_help_of_one_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    words = command_parser().format_help()
    monkeypatch.setenv("COLUMNS", "200")
    assert command_parser().format_help() == words
    told = re.findall(r"(?:codes:|;)\s+(\d+) ", words)
    assert {int(number) for number in told} == {code.value for code in ExitCode}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("paint",), "there is no command 'paint': the commands are trace, report, check"),
        (("chek",), "did you mean check?"),
        (("export", "x.json", "-o", "x.onnx"), "fxlab.export(session, path)"),
        (("nodes", "x.json"), "`fxlab trace MODEL --nodes`"),
        (("why_not", "x.json"), "session.why_not(name, node)"),
        (("passes",), "`fxlab doctor`"),
        (("lab", "x.json"), "fxlab.inspect(model)"),
        (("verdict", "x.json"), "`fxlab report MODEL --passes NAMES`"),
        (("report", "x.json", "y.json"), "`fxlab compare REFERENCE CANDIDATE`"),
        (("report", "x.json", "-p", "merge-linears", "fuse-gelu"), "separated by commas"),
        (("trace", "x.json", "--format", "json"), "--json prints JSON"),
        (("trace", "x.json", "--input-shape", "2x8"), "--inputs 2x8"),
        (("trace", "no_such_file.py"), "no such file"),
        (("trace", "x.json", "--batchsize", "3"), "did you mean --batch-size?"),
        (("report", "x.json", "-p", "merge-linear"), "Did you mean merge-linears?"),
        (("trace",), "required: MODEL"),
        (("trace", "x.json", "--batch-size", "0"), "expected a positive integer, got '0'"),
        (("trace", "x.json", "--meta", "--random-weights"), "not allowed with"),
        (("trace", "x.json", "--code", "--nodes"), "not allowed with"),
        (("trace", "x.json", "--no-such-option"), "unrecognized arguments: --no-such-option"),
        (("trace", "x.json", "--dtype", "int8"), "invalid choice: 'int8'"),
    ],
)
def test_bad_usage_ends_with_2_and_a_line_that_says_what_is_wrong(fxlab, arguments, words):
    ended = fxlab(*arguments)
    assert ended.code == 2
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""


def test_a_traceback_is_shown_only_if_it_is_asked_for(fxlab, tmp_path):
    missing = tmp_path / "config.json"
    assert "Traceback" not in fxlab("trace", missing).err
    shown = fxlab("trace", missing, "--traceback")
    assert "Traceback" in shown.err
    assert shown.err.endswith("there is no such file or directory.\n")


def test_what_was_not_foreseen_ends_with_70_in_words(fxlab, tiny, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(trace, "traced", broken)
    ended = fxlab("trace", tiny)
    assert ended.code == 70
    assert ended.err == "fxlab: RuntimeError: a bug (--traceback shows where)\n"


def test_without_a_command_it_prints_its_help(fxlab):
    ended = fxlab()
    assert (ended.code, ended.out.startswith("usage: fxlab")) == (0, True)


def test_ctrl_c_in_this_process_leaves_words(fxlab, tiny, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    # In the file that calls it: one that is first imported now would keep the function that interrupts.
    monkeypatch.setattr(report, "session_with_passes", interrupted)
    ended = fxlab("report", tiny)
    assert (ended.code, ended.err) == (130, "fxlab: interrupted\n")
