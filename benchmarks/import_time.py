"""What ``import fxlab`` costs a process."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""

    def importing(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    yield Comparison("import", "import torch", lambda: importing("fxlab"), lambda: importing("torch"))
