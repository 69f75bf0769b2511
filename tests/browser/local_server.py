"""A server of our own on loopback, for the time of a ``with`` block."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

STARTUP_SECONDS = 90


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LocalServer:
    """A process that answers on a port.

    Parameters
    ----------
    command
        What starts it.
    environment
        Its environment variables.
    port
        Where it listens.
    health
        What answers once it is up, such as ``/api/status``.
    log
        The file for what it prints.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], port: int, health: str, log: Path
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self._command, self._environment, self._health = command, environment, health
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}{self._health}", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.__exit__(None, None, None)
        printed = self.log.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"{' '.join(self._command[:3])} did not start:\n{printed}")
