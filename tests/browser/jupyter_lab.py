"""A JupyterLab of our own on loopback, with nothing of the machine's settings in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

STARTUP_SECONDS = 90


class JupyterLab:
    """A server for the time of a ``with`` block.

    Parameters
    ----------
    notebooks
        The folder that it serves.
    state
        An empty folder for its settings, logs and runtime files.
    python_path
        Folders that kernels can import from besides their environment.
    """

    def __init__(self, notebooks: Path, state: Path, python_path: tuple[Path, ...] = ()) -> None:
        self.notebooks = notebooks
        self._state = state
        self._python_path = python_path
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it and its kernels print."""
        return self._state / "lab.log"

    def __enter__(self) -> JupyterLab:
        folders = {
            name: str(self._state / name.lower())
            for name in (
                "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
                "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "HF_HOME",
            )
        }  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
        environment |= folders | {
            "PYTHONPATH": os.pathsep.join(map(str, self._python_path)),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "2",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        self._write_settings(Path(folders["JUPYTERLAB_SETTINGS_DIR"]))
        arguments = [
            "--ip=127.0.0.1", f"--port={self.port}", "--port-retries=0", "--no-browser", "--allow-root",
            "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={self.notebooks}", "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
            "--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *arguments],
                env=environment,
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

    @staticmethod
    def _write_settings(folder: Path) -> None:
        """Answer beforehand what a fresh JupyterLab would ask."""
        settings = folder / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/api/status", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.__exit__(None, None, None)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')[-4000:]}")
