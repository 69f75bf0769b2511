"""``fxlab compile``: the work of ``torch.compile`` inside an unchanged script, as one HTML file."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.base.words import counted, error_words
from fxlab.command_line.answer import Answer, CommandError, ExitCode, ends_with, plain_warnings
from fxlab.record_here import environment_for

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.compiler import CompileRecord


_RUNNERS = (os.path.abspath(__file__), "<frozen runpy>")
"""Files whose frames do not belong to a traceback of the script."""


@dataclass(frozen=True)
class ScriptEnd:
    """The end of a script: its exit code or its exception."""

    words: str
    code: ExitCode


def run_script(script: str, arguments: Sequence[str], *, is_module: bool) -> ScriptEnd:
    """Run a script as the main program; its error is shown as Python shows it, and is not raised.

    ``script``: its file, or with ``is_module`` the name of a module, as after ``python -m``. ``arguments``:
    the rest of its ``sys.argv``. ``is_module``: whether it is a module.
    """
    try:
        with _as_main_program(script, arguments, is_module=is_module):
            if is_module:
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(os.path.abspath(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or end.code == 0:
            return ScriptEnd("done", ExitCode.DONE)
        if isinstance(end.code, int):
            return ScriptEnd(f"ended with status {end.code}", ExitCode.SCRIPT_FAILED)
        print(end.code, file=sys.stderr)
        return ScriptEnd(f"ended: {end.code}", ExitCode.SCRIPT_FAILED)
    except BaseException as error:
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename in _RUNNERS:
            inner = inner.tb_next  # none is left of a script that does not parse
        error.__traceback__ = inner
        sys.excepthook(type(error), error, inner)
        is_interrupt = isinstance(error, KeyboardInterrupt)
        code = ExitCode.INTERRUPTED if is_interrupt else ExitCode.SCRIPT_FAILED
        return ScriptEnd(f"raised {error_words(error)}", code)
    return ScriptEnd("done", ExitCode.DONE)


@contextmanager
def _as_main_program(script: str, arguments: Sequence[str], *, is_module: bool) -> Iterator[None]:
    """Set the arguments of a script, and make modules in its folder importable."""
    folder = os.getcwd() if is_module else os.path.dirname(os.path.abspath(script))
    argv, sys.argv = sys.argv, [script, *arguments]
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv = argv
        if not sys.flags.safe_path and folder in sys.path:
            sys.path.remove(folder)


_STORY = ["compile", "function", "kind", "reason", "hint", "place", "seconds", "graph"]


def compile(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Run a script, judge what it has compiled, and write the report."""
    if options.script is None:
        return _recorded_command(options)
    from fxlab.compiler import record_compile

    if not options.module and not Path(options.script).is_file():
        raise CommandError(f"there is no file {options.script} (with -m it is the name of a module)")
    output = str(Path(options.output).absolute()) if options.output else None
    # The output of the command, which a program reads, must not mix with the output of the script.
    is_read = options.json
    printing = contextlib.redirect_stdout(sys.stderr) if is_read else contextlib.nullcontext()
    with record_compile() as record, printing:
        ended = run_script(options.script, options.arguments, is_module=options.module)
    with plain_warnings():
        return _answer(options, record, ended, output)


def _recorded_command(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Start a command whose processes each write a record, and list these."""
    if not options.arguments:
        raise CommandError("expected a script, or a command to start: fxlab compile -o FOLDER -- COMMAND")
    if options.output is None or Path(options.output).suffix:
        raise CommandError("-o: expected the folder that the processes of the command write records into.")
    folder = Path(options.output)
    before = {*folder.glob("*")}
    printing = 2 if options.json else None  # standard error: JSON is alone on standard output
    with tempfile.TemporaryDirectory() as metadata, _interrupts_left_to_children():
        environment = environment_for(folder, Path(metadata))
        try:
            ran = subprocess.run(options.arguments, env=environment, stdout=printing, check=False)
        except OSError as error:
            raise CommandError(f"{options.arguments[0]}: {error}") from error
    records = sorted(str(path) for path in {*folder.glob("*")} - before)
    facts = {
        "command": shlex.join(options.arguments),
        "ended": "done" if ran.returncode == 0 else f"ended with status {ran.returncode}",
        "records": records,
    }
    if ran.returncode:
        return Answer(facts), ExitCode.SCRIPT_FAILED
    return Answer(facts), ExitCode.DONE if records else ExitCode.NOT_COMPARED


@contextmanager
def _interrupts_left_to_children() -> Iterator[None]:
    """Let Ctrl-C, which a terminal sends to children as well, end them and not this process."""
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _answer(
    options: argparse.Namespace, record: CompileRecord, ended: ScriptEnd, output: str | None
) -> tuple[Answer, ExitCode]:
    import torch

    judge = not options.no_measure
    command = shlex.join(["-m"] * options.module + [options.script, *options.arguments])
    # The script may have left torch without gradients.
    with torch.enable_grad():
        table, code = _judged(record, judge=judge)
        facts: dict[str, Any] = {
            "script": command,
            "ended": ended.words,
            "graphs": len(record.sessions),
            "report": None,
            "remarks": list(record.remarks),
        }
        if output and record.sessions:
            facts["report"] = _written(options, record, output, command, ended)
    if not record.sessions:
        facts["remarks"] += [
            "Nothing was compiled and run" + (", so no report was written." if output else ".")
        ]
    story = record.story() if options.json else record.story()[_STORY]
    answer = Answer(facts, {"graphs": table, "story": story})
    return answer, code if ended.code is ExitCode.DONE else ended.code


def _judged(record: CompileRecord, *, judge: bool) -> tuple[pd.DataFrame, ExitCode]:
    """Return a row for each graph with its verdict, and the exit code that these ask for."""
    from fxlab.html_report.contents import verdict_words

    found = [verdict_words(session, judge=judge) for session in record.sessions.values()]
    table = record.table
    table.insert(len(table.columns) - 2, "verdict", [words for words, _, _ in found])
    table.insert(len(table.columns) - 2, "reason", ["" if agrees else reason for _, agrees, reason in found])
    agree = [agrees for _, agrees, _ in found]
    if False in agree:
        return table, ExitCode.DIFFERENT
    # A function that Dynamo leaves to Python has no graph, and a story that says why.
    if (not agree and record.story().empty) or (judge and None in agree):
        return table, ExitCode.NOT_COMPARED
    return table, ExitCode.DONE


def _written(
    options: argparse.Namespace, record: CompileRecord, output: str, command: str, ended: ScriptEnd
) -> str:
    from fxlab.html_report.report import report_several

    notes = [f"torch.compile, recorded while this script ran: {command}"]
    if ended.words != "done":
        notes.append(f"The script {ended.words}. What it had compiled until then is shown.")
    kinds = record.story()["kind"]
    if len(kinds := kinds[kinds != "compile"]):
        told = ", ".join(counted(number, str(kind)) for kind, number in kinds.value_counts().items())
        notes.append(f"Dynamo's story has {told}: record.story() lists them.")
    with ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o)"):
        title = Path(options.script).name
        if not output.endswith(".html"):
            output = str(record.write(output) / "report.html")
        report_several(
            record.sessions,
            output,
            title=title,
            notes=notes,
            measure=not options.no_measure,
            skip_failing=True,
        )
    return output
