"""The process that runs Graphviz: one request after another on stdin, answers on stdout.

A layout is C code that cannot be interrupted and may crash; here it can be killed without the kernel
noticing. Run as a file, so that neither torch nor the rest of the package is imported. A message is a JSON
header line, whose ``size`` says how many bytes follow it.
"""

import json
import os
import signal
import sys
import tempfile
from math import ceil
from typing import BinaryIO


def main() -> None:
    """Answer requests until stdin closes."""
    requests = sys.stdin.buffer
    # Output of Graphviz on stdout must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryFile() as complaints:
        os.dup2(complaints.fileno(), 2)
        while line := requests.readline():
            header = json.loads(line)
            dot = requests.read(header["size"])
            complaints.seek(0)
            complaints.truncate()
            _limit(header["timeout"])
            answer, data = _lay_out(dot, header["format"])
            _limit(0)
            complaints.seek(0)
            answer["stderr"] = complaints.read(10_000).decode("utf-8", "replace")
            _send(answers, answer, data)


def _limit(seconds: float) -> None:
    """Ask the system to end this process if its parent dies during a layout that never ends."""
    if hasattr(signal, "alarm"):
        signal.alarm(ceil(seconds) + 5 if seconds else 0)


def _lay_out(dot: bytes, output_format: str) -> tuple[dict[str, object], bytes]:
    try:
        import pygraphviz
    except Exception as error:
        return {"status": "no-graphviz", "error": f"{type(error).__name__}: {error}"}, b""
    try:
        graph = pygraphviz.AGraph(string=dot.decode("utf-8"))
        return {"status": "ok"}, bytes(graph.draw(format=output_format, prog="dot"))
    except Exception as error:
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}, b""


def _send(answers: BinaryIO, answer: dict[str, object], data: bytes) -> None:
    answers.write(json.dumps({**answer, "size": len(data)}).encode() + b"\n" + data)
    answers.flush()


if __name__ == "__main__":
    main()
