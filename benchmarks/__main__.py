"""Run all comparisons, or those that are named: ``python -m benchmarks import_time pictures``.

Prints a table. A run of all writes ``docs/measured/peers.csv`` as well, and adds to the history.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import compare_nodes, import_time, measured, passes, peers, tracing
from benchmarks.measure import compared

FOLDER = Path(__file__).parent
HISTORY = FOLDER / "history.csv"
"""A row for each comparison of each run that was kept."""

SUITES = {
    "import_time": import_time,
    "passes": passes,
    "compare_nodes": compare_nodes,
    "tracing": tracing,
}
WITH_PEERS = ("optimum_passes", "first_picture", "pictures", "explorer", "values", "vision_models")
"""Suites that need other people's tools, which are in an environment of their own."""


def main() -> None:
    """Measure each comparison, one after the other."""
    logging.set_verbosity_error()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    known = (*SUITES, *WITH_PEERS)
    chosen = sys.argv[1:] or known
    if unknown := sorted(set(chosen) - set(known)):
        sys.exit(f"There is no {', '.join(unknown)}. The suites are: {', '.join(known)}.")
    rows: list[dict[str, Any]] = []
    for name in tqdm(chosen):
        for row in map(compared, SUITES[name].comparisons()) if name in SUITES else peers.rows(name):
            rows.append(row)
            tqdm.write(f"{row['task']}: {row['ratio']:.3g} of {row['peer']}")
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    if set(chosen) == set(known):
        write(rows)
        keep(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the table, and the row of the page."""
    table = pd.DataFrame(rows)
    answered = table["ratio"].dropna()
    figure = f"{(answered < 1).sum()} of {len(answered)} tasks take less time than the peer's"
    measured.write("make bench", figure, {"peers": table})


def keep(rows: list[dict[str, Any]]) -> None:
    """Add the rows to the history."""
    run = {"date": time.strftime("%Y-%m-%d"), "fxlab": fxlab.__version__, "machine": machine()}
    table = pd.DataFrame([run | row for row in rows])
    table.to_csv(HISTORY, mode="a", header=not HISTORY.exists(), index=False, float_format="%.5g")


def machine() -> str:
    """Describe what this runs on, in words that name no host."""
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, {versions}, one thread"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
