"""The time that each call of a kernel takes, by the lines of the generated code that call them."""

import ast
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from fxlab.models.running import accelerators_in_use

_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+)")
"""The comment that Inductor writes above the call of a kernel."""


@dataclass(frozen=True)
class _Called:
    """A statement of generated code, and the kernels that it calls."""

    last_line: int
    kernels: tuple[str, ...]


def seconds_of_kernels(
    files: Collection[str], run: Callable[[], Any], rounds: int
) -> dict[str, dict[str, float]]:
    """Run generated code, and return by file and kernel the median seconds of a call, launch included.

    An accelerator is waited for before and after each call. Kernels are missing whose calls the code does not
    tell. The first of the runs is not measured.
    """
    calls = {file: called for file in files if (called := _calls(file))}
    if not calls:
        return {}
    clock = _Clock(calls)
    run()
    for _ in range(rounds):
        # A backward pass runs in this thread, whose lines are seen.
        with clock.running(), torch.autograd.set_multithreading_enabled(False):
            run()
    return {
        file: {kernel: statistics.median(seconds) for kernel, seconds in known.items()}
        for file, known in clock.seconds.items()
    }


def _calls(file: str) -> dict[int, _Called]:
    """Return the calls of kernels in a file, by their first line."""
    try:
        source = Path(file).read_text("utf-8")
        statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    ends = {node.lineno: node.end_lineno or node.lineno for node in statements}
    lines = sorted(ends)
    found: dict[int, _Called] = {}
    for number, line in enumerate(source.splitlines(), 1):
        handle = _HANDLE.search(line) if line.lstrip().startswith("#") else None
        first = next((known for known in lines if known > number), None) if handle else None
        if handle and first is not None:
            known = found[first].kernels if first in found else ()
            found[first] = _Called(ends[first], (*known, handle[1]))
    return found


class _Clock:
    """Takes the time of lines in some files."""

    def __init__(self, calls: dict[str, dict[int, _Called]]) -> None:
        self._calls = calls
        self._devices = accelerators_in_use()
        self.seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the kernels that run in the block, in this thread."""
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        calls = self._calls.get(frame.f_code.co_filename)
        return None if calls is None else self._timed(frame.f_code.co_filename, calls)

    def _timed(self, file: str, calls: dict[int, _Called]) -> Callable[[FrameType, str, Any], Any]:
        """Return a trace function for the lines of one call of a function of generated code."""
        now: _Called | None = None
        first_line, start = 0, 0.0

        def hear(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal now, first_line, start
            line = frame.f_lineno
            if now is not None and (event == "return" or not first_line <= line <= now.last_line):
                self._wait()
                seconds = time.perf_counter() - start
                for kernel in now.kernels:
                    self.seconds[file][kernel].append(seconds)
                now = None
            if now is None and event == "line" and line in calls:
                now, first_line = calls[line], line
                # An accelerator runs kernels later than the line that starts them.
                self._wait()
                start = time.perf_counter()
            return hear

        return hear

    def _wait(self) -> None:
        for device in self._devices:
            torch.accelerator.synchronize(device)
