"""Graphviz in a process of its own, for pictures and pages: one can cancel it, and it crashes nobody else."""

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Literal

LayoutFormat = Literal["svg", "png", "pdf", "dot"]

TIMEOUT = 20.0
"""Seconds after which a layout is given up."""
MOST_KNOWN = 16
"""Layouts that are remembered."""

_WORKER = Path(__file__).with_name("layout_worker.py")


class LayoutError(RuntimeError):
    """Graphviz could not lay out a graph; the message holds its output."""


class LayoutTimeoutError(LayoutError):
    """A layout took longer than allowed and was stopped."""


class LayoutProcess:
    """A Graphviz worker process: started when needed, restarted when it died, shared by threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        self._owner = os.getpid()

    def start(self) -> None:
        """Start the process, so that a later request need not wait for it; returns at once."""
        if self._turn.acquire(blocking=False):
            try:
                self._ensure_started()
            finally:
                self._turn.release()

    def stop(self) -> None:
        """End the process: a request under way fails with :class:`LayoutError`, the next starts it again."""
        process = self._process
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            _close(process)

    def request(self, dot: str, output_format: str, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Return the worker's answer to one request; the process is killed on timeout and on interruption."""
        data = dot.encode("utf-8", "replace")
        header = {"format": output_format, "timeout": timeout, "size": len(data)}
        with self._turn:
            process = self._ensure_started()
            finished = False
            try:
                assert process.stdin is not None
                with contextlib.suppress(OSError, ValueError):  # a dead process shows as a missing answer
                    process.stdin.write(json.dumps(header).encode() + b"\n" + data)
                    process.stdin.flush()
                answer = self._answers.get(timeout=timeout)
                finished = answer is not None
            except queue.Empty:
                raise LayoutTimeoutError(
                    f"Graphviz was stopped after {timeout:g} s. Close some groups, or allow more time."
                ) from None
            finally:
                if not finished:
                    self.stop()
                    self._process = None
        if answer is None:
            raise LayoutError("The layout was cancelled, or the Graphviz process ended by itself.")
        return answer

    def _ensure_started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        if self._process is not None:
            _close(self._process)
        self._owner = os.getpid()
        self._answers = queue.SimpleQueue()
        self._process = process = subprocess.Popen(
            # -P: the worker's folder must not shadow the standard library's modules.
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        threading.Thread(
            target=_read_answers, args=(process.stdout, self._answers), daemon=True, name="fxlab-layout"
        ).start()
        return process


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _read_answers(stdout: IO[bytes], answers: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while line := stdout.readline():
            header = json.loads(line)
            answers.put((header, stdout.read(header["size"])))
    answers.put(None)
    with contextlib.suppress(OSError):
        stdout.close()


_process = LayoutProcess()
_KNOWN: dict[tuple[str, str], bytes] = {}
"""Finished layouts, the newest last."""
atexit.register(lambda: _process.stop())


def start_layout_worker() -> None:
    """Start Graphviz's process in the background, so that the first picture need not wait for it."""
    _process.start()


def lay_out(dot: str, output_format: LayoutFormat = "svg", *, timeout: float = TIMEOUT) -> bytes:
    """Lay out a graph with ``dot`` of the Graphviz in ``pygraphviz``; the last layouts are remembered."""
    if (known := _KNOWN.get((dot, output_format))) is not None:
        return known
    answer, data = _process.request(dot, output_format, timeout)
    if answer["status"] == "no-graphviz":
        raise LayoutError(
            f"Graphviz was not found: pygraphviz cannot be imported ({answer['error']}). "
            "Install it with: pip install 'pygraphviz>=2.0'"
        )
    if answer["status"] != "ok" or not data:
        words = " ".join(filter(None, [answer.get("error", ""), answer.get("stderr", "").strip()]))
        raise LayoutError(f"Graphviz could not lay out the graph: {words or 'no output'}")
    _KNOWN[dot, output_format] = data
    for key in [*_KNOWN][: len(_KNOWN) - MOST_KNOWN]:
        _KNOWN.pop(key, None)
    return data
