"""What ``import fxlab`` costs a process."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Comparison


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""

    def importing(modules: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)

    yield Comparison(
        "import torch and fxlab",
        "import torch",
        lambda: importing("torch, fxlab"),
        lambda: importing("torch"),
    )
