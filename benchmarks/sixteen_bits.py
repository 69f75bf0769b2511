"""Rewrites of elementwise calls, judged on every number: ``python -m benchmarks.sixteen_bits``.

Each pass is applied alone to forty tiny models in bfloat16 and float16. Counted are the rewrites that give
the same bits for all numbers, and those that do not, with how many numbers. It writes
``docs/measured/sixteen_bits.csv`` and its row of ``docs/measured.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.verdict_models import NAMES, model_and_inputs
from fxlab.operators.node_info import dtype_name
from fxlab.transformations import available
from fxlab.validation.verdicts.sixteen_bits import DTYPES, every_number


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each changed chain of calls."""
    for name in tqdm(NAMES):
        for dtype in DTYPES:
            try:
                session = fxlab.Session(*model_and_inputs(name, dtype))
            except (RuntimeError, ValueError):  # an operator that the CPU has for other dtypes alone
                continue
            for pass_ in [cls() for cls in available()]:
                changed = session.preview(session.add(pass_).passes[pass_.name])
                found = every_number(session.original, changed)
                chains = [(chain, 0) for chain in found.proved] + [(c, len(n)) for c, n in found.others]
                for chain, count in chains:
                    yield {
                        "pass": pass_.name,
                        "dtype": dtype_name(dtype),
                        "model": name,
                        "before": _calls(chain.original),
                        "after": _calls(chain.transformed),
                        "differ": count,
                    }


def _calls(module: torch.fx.GraphModule) -> str:
    calls = (node for node in module.graph.nodes if node.op.startswith("call"))
    return "; ".join(node.format_node() or "" for node in calls)


def main() -> None:
    """Judge all, print a summary and write the row."""
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pd.DataFrame(rows())
    table["proved"] = table["differ"] == 0
    keys = ["pass", "dtype", "before", "after", "differ", "proved"]
    summary = table.groupby(keys).size().rename("rewrites").reset_index()
    print(summary.to_string(index=False))
    figure = f"{table['proved'].sum()} of {len(table)} rewrites give the same bits for every number"
    measured.write("python -m benchmarks.sixteen_bits", figure, {"sixteen_bits": summary})


if __name__ == "__main__":
    main()
