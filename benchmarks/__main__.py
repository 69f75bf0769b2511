"""Run all comparisons, or those that are named: ``python -m benchmarks import_time pictures``.

Prints a table. A run of all writes ``benchmarks/results.md`` as well, and adds to the history.
"""

from __future__ import annotations

import math
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
from benchmarks import compare_nodes, import_time, passes, peers, tracing
from benchmarks.measure import measured

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.md"
HISTORY = FOLDER / "history.csv"
"""A row for each comparison of each run that was kept."""

SUITES = {
    "import_time": import_time,
    "passes": passes,
    "compare_nodes": compare_nodes,
    "tracing": tracing,
}
WITH_PEERS = ("optimum_passes", "pictures", "explorer", "values", "vision_models")
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
        for row in map(measured, SUITES[name].comparisons()) if name in SUITES else peers.rows(name):
            rows.append(row)
            tqdm.write(f"{row['task']}: {row['ratio']:.3g} of {row['peer']}")
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    if set(chosen) == set(known):
        write(rows)
        keep(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the page that people read."""
    load = os.getloadavg()[1]
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`: each task is done by fxlab and by a peer, in turns, in one run on one "
        "machine. Seconds are medians; a ratio below 1 means that fxlab is faster; the range is that of "
        "the rounds. A peer that fails, or takes longer than a minute, gave no answer.",
        "",
        f"{machine()}; load {load:.1f} (more than one process per core makes "
        "seconds longer and ranges wider; ratios suffer less).",
        "",
        "| Task | Peer | fxlab [s] | Peer [s] | Ratio | Range |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['task']} | {row['peer']} | {row['fxlab [s]']:.3g} "
            + (
                f"| {row['peer [s]']:.3g} | {row['ratio']:.2f} | {row['from']:.2f} to {row['to']:.2f} |"
                if math.isfinite(row["peer [s]"])
                else "| no answer | | |"
            )
            for row in rows
        ),
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


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
