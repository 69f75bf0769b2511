"""``fxlab compile``: what ``torch.compile`` does inside of an unchanged script, as one HTML file."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlab.command_line.answer import Answer
from fxlab.command_line.exit_code import CommandError, ExitCode, ends_with
from fxlab.command_line.plain_warnings import plain_warnings
from fxlab.command_line.progress import Progress
from fxlab.command_line.script_run import ScriptEnd, run_script

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.compiler import CompileRecord


_STORY = ["compile", "function", "kind", "reason", "hint", "place", "seconds", "graph"]
_NOTHING = "No ops traced"
"""The beginning of Dynamo's reason where there is nothing to compile."""
_MOST_EVENTS = 60
"""Events of the story that are told on the first page of the report."""


def compile(options: argparse.Namespace) -> tuple[Answer, ExitCode]:
    """Run a script, judge what it has compiled, and write the report."""
    from fxlab.compiler import record_compile

    if not options.module and not Path(options.script).is_file():
        raise CommandError(f"there is no file {options.script} (with -m it is the name of a module)")
    output = str(Path(options.output).absolute()) if options.output else None
    # What a program reads of the command is not mixed with what the script prints.
    is_read = options.format != "text"
    printing = contextlib.redirect_stdout(sys.stderr) if is_read else contextlib.nullcontext()
    with record_compile() as record, printing:
        ended = run_script(options.script, options.arguments, is_module=options.module)
    with plain_warnings(verbose=options.verbose):
        return _answer(options, record, ended, output)


def _answer(
    options: argparse.Namespace, record: CompileRecord, ended: ScriptEnd, output: str | None
) -> tuple[Answer, ExitCode]:
    import torch

    judge = not options.no_measure
    command = shlex.join(["-m"] * options.module + [options.script, *options.arguments])
    # The script may have left torch without gradients.
    with torch.enable_grad(), Progress(len(record.sessions) + 1, verbose=options.verbose) as progress:
        table, code = _judged(record, progress, judge=judge)
        facts: dict[str, Any] = {
            "script": command,
            "ended": ended.words,
            "graphs": len(record.sessions),
            "report": None,
            "remarks": list(record.remarks),
        }
        if judge:
            told = (words for one in record.sessions.values() for words in one.operator_remarks)
            facts["remarks"] += dict.fromkeys(told)
        with progress.step("write"):
            if output and record.sessions:
                facts["report"] = _written(options, record, output, command, ended)
    if not record.sessions:
        facts["remarks"] += [
            "Nothing was compiled and run" + (", so no report was written." if output else ".")
        ]
    answer = Answer(facts, {"graphs": table, "story": record.story()}, {"story": _STORY})
    return answer, code if ended.code is ExitCode.DONE else ended.code


def _judged(record: CompileRecord, progress: Progress, *, judge: bool) -> tuple[pd.DataFrame, ExitCode]:
    """Return a row for each graph with its verdict, and the exit code that these ask for."""
    from fxlab.html_report.contents import verdict_words

    found = []
    for name, session in record.sessions.items():
        with progress.step(name):
            found.append(verdict_words(session, judge=judge))
    table = record.table()
    table.insert(len(table.columns) - 2, "verdict", [words for words, _, _ in found])
    table.insert(len(table.columns) - 2, "reason", ["" if agrees else reason for _, agrees, reason in found])
    agree = [agrees for _, agrees, _ in found]
    if False in agree:
        return table, ExitCode.DIFFERENT
    # A function that Dynamo leaves to Python has no graph, and a story that says why.
    if (not agree and record.story().empty) or (judge and None in agree):
        return table, ExitCode.NOT_COMPARED
    return table, ExitCode.DONE


def _story(record: CompileRecord) -> list[str]:
    """Return the events that the list of graphs does not tell, a paragraph each."""
    ends = {one.graph_break.place for one in record.sessions.values() if one.graph_break is not None}
    told = [
        event
        for event in record.story().to_dict("records")
        if event["kind"] not in ("compile", "symbol")
        and not (event["kind"] == "break" and event["place"] in ends)
        and not event["reason"].startswith(_NOTHING)
    ]
    lines = [
        f"{event['kind']} of {event['function']} ({event['compile'] or 'not compiled'}): {event['reason']}"
        + (f" at {': '.join(filter(None, (event['place'], event['code'])))}" if event["place"] else "")
        + (f" — {event['hint']}" if event["hint"] else "")
        for event in told[:_MOST_EVENTS]
    ]
    more = len(told) - _MOST_EVENTS
    return [*lines, *([f"... and {more} more events: record.story() has all."] if more > 0 else [])]


def _written(
    options: argparse.Namespace, record: CompileRecord, output: str, command: str, ended: ScriptEnd
) -> str:
    from fxlab.html_report.report import report_several

    notes = [f"torch.compile, recorded while this script ran: {command}"]
    if ended.words != "done":
        notes.append(f"The script {ended.words}. What it had compiled until then is shown.")
    notes += _story(record)
    with ends_with(ExitCode.BAD_USAGE, OSError, ValueError, hint="(-o)"):
        title = Path(options.script).name
        if not output.endswith(".html"):
            output = str(record.write_texts(output) / "report.html")
        report_several(
            record.sessions,
            output,
            title=title,
            notes=notes,
            measure=not options.no_measure,
            skip_failing=True,
        )
    return output
