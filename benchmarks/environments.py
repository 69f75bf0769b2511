"""Environments for packages that are no development dependencies, which see those of the development."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_with(folder: str, requirements: Iterable[str]) -> Path:
    """Return the Python of an environment in a folder of the checkout, made when it is not there.

    The requirements, packages with their versions or options of pip, are installed without their
    dependencies: everything else is found in this environment.
    """
    environment = ROOT / folder
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment)
        packages = next(environment.glob("lib/python*/site-packages"))
        found_there = sysconfig.get_path("purelib"), ROOT
        (packages / "development.pth").write_text("".join(f"{path}\n" for path in found_there))
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, *requirements], check=True, stdout=sys.stderr)
    return python
