"""A Python script as ``python script.py`` runs it, inside of this process."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from fxlab.author_frames import error_words
from fxlab.command_line.exit_code import ExitCode

_RUNNERS = (os.path.abspath(__file__), "<frozen runpy>")
"""Whose frames are no part of a traceback of the script."""


@dataclass(frozen=True)
class ScriptEnd:
    """The end of a script: its exit code or its exception."""

    words: str
    code: ExitCode


def run_script(script: str, arguments: Sequence[str], *, is_module: bool) -> ScriptEnd:
    """Run a script as the main program; what it raises is shown as Python shows it, and is not raised.

    ``script``: its file, or with ``is_module`` the name of a module, as after ``python -m``. ``arguments``:
    what follows it in ``sys.argv``. ``is_module``: whether it is a module.
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
        error.__traceback__ = _of_script(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        is_interrupt = isinstance(error, KeyboardInterrupt)
        code = ExitCode.INTERRUPTED if is_interrupt else ExitCode.SCRIPT_FAILED
        return ScriptEnd(f"raised {error_words(error)}", code)
    return ScriptEnd("done", ExitCode.DONE)


@contextmanager
def _as_main_program(script: str, arguments: Sequence[str], *, is_module: bool) -> Iterator[None]:
    """Let a script find its arguments, and modules beside it."""
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


def _of_script(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of what runs the script; none of a script that is no Python."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _RUNNERS:
        traceback = traceback.tb_next
    return traceback
