"""A Python that has imported torch and nothing of fxlab, which takes seconds: code runs in a fork of it."""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SERVER = """
import json, os, signal, socket, sys, traceback
import torch

def run(asked):
    os.chdir(asked["cwd"])
    sys.path[:0] = asked["path"]
    sys.argv = ["-c", *asked["arguments"]]
    for number, file in ((1, asked["out"]), (2, asked["err"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    try:
        exec(compile(asked["code"], "<string>", "exec"), vars(sys.modules["__main__"]))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listening.close()
        code = run(json.loads(connection.makefile().readline()))
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
"""


@functools.cache
def _address() -> str:
    """Return where the process listens, which starts now and ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="fresh")
    command = [sys.executable, "-c", SERVER, f"{folder.name}/socket"]
    # Hashes of texts are others than here.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONHASHSEED": "7"})
    for end in (folder.cleanup, process.stdout.close, process.wait, process.kill):  # the last one first
        atexit.register(end)
    assert process.stdout.readline() == b"ready\n"
    return f"{folder.name}/socket"


class Fresh:
    """Code that runs with arguments in a folder, where Python looks into others first."""

    def __init__(self, code: str, *arguments: object, cwd: Path | str = ".", path: tuple = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fresh")
        self._files = {name: f"{self._folder.name}/{name}" for name in ("out", "err")}
        asked = {"code": textwrap.dedent(code), "cwd": str(Path(cwd).absolute()), **self._files}
        asked |= {"arguments": [*map(str, arguments)], "path": [*map(str, path), str(Path(__file__).parent)]}
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_address())
        self._connection.sendall(f"{json.dumps(asked)}\n".encode())

    def wait(self, timeout: float = 300) -> str:
        """Return what it has printed, when it has ended without an error."""
        self._connection.settimeout(timeout)
        with self._connection, self._folder, self._connection.makefile() as answer:
            code = answer.read()
            assert code == "0", Path(self._files["err"]).read_text()
            return Path(self._files["out"]).read_text()


def run(code: str, *arguments: object, **places: object) -> str:
    """Run code without an error, and return what it prints."""
    return Fresh(code, *arguments, **places).wait()
