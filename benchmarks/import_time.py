"""What ``import fxlab`` adds to ``import torch``: seconds of a new process, and their share of torch's."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Comparison, Seconds

_CODE = """
import time
start = time.perf_counter()
import torch
between = time.perf_counter()
import fxlab
print(between - start, time.perf_counter() - between)
"""


def comparisons() -> Iterator[Comparison]:
    """Yield what is compared."""
    yield Comparison(
        "import fxlab, after torch", "import torch", lambda: imported()[1], lambda: imported()[0]
    )


def imported() -> tuple[Seconds, Seconds]:
    """Import torch and then fxlab in a new process, and return what each took."""
    ran = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True)
    torch_took, fxlab_took = map(Seconds, ran.stdout.split())
    return torch_took, fxlab_took
