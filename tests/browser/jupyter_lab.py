"""A JupyterLab of our own on loopback, with nothing of the machine's settings in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from local_server import LocalServer, free_port


class JupyterLab(LocalServer):
    """A server for the time of a ``with`` block, of JupyterLab and of Notebook 7.

    Parameters
    ----------
    notebooks
        The folder that it serves.
    state
        An empty folder for its settings, logs and runtime files.
    python_path
        Folders that kernels can import from besides their environment.
    static
        Folders whose files are served as they are, below ``/static``.
    """

    def __init__(
        self, notebooks: Path, state: Path, python_path: tuple[Path, ...] = (), static: tuple[Path, ...] = ()
    ) -> None:
        self.notebooks = notebooks
        folders = {
            name: str(state / name.lower())
            for name in (
                "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
                "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "HF_HOME",
            )
        }  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
        environment |= folders | {
            "PYTHONPATH": os.pathsep.join(map(str, python_path)),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        _write_settings(Path(folders["JUPYTERLAB_SETTINGS_DIR"]))
        port = free_port()
        arguments = [
            "--ip=127.0.0.1", f"--port={port}", "--port-retries=0", "--no-browser", "--allow-root",
            "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={notebooks}", "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
            "--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True",
            *(f"--ServerApp.extra_static_paths={folder}" for folder in static),
        ]  # fmt: skip
        command = [sys.executable, "-m", "jupyterlab", *arguments]
        super().__init__(command, environment, port, "/api/status", state / "lab.log")

    def write(self, name: str, *cells: str) -> None:
        """Write a notebook of code cells into the folder that is served."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        written = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=written, metadata={"kernelspec": kernel})
        nbformat.write(notebook, self.notebooks / name)


def _write_settings(folder: Path) -> None:
    """Answer beforehand what a fresh JupyterLab would ask."""
    settings = folder / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
