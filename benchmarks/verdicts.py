"""False alarms and missed mistakes of ``fxlab.verdict``: ``python -m benchmarks.verdicts``.

Some thousand rewrites that are right and five hundred planted mistakes, on forty models in three dtypes, are
judged by the verdict and by ``torch.allclose`` with four tolerances. A mistake that changes nothing in float64 is
not reached by the inputs and does not count. What was judged is kept in ``build/verdicts.jsonl``, so a run can be
interrupted and goes on where it was; a run of all writes ``docs/verdicts.md``.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from torch.fx import GraphModule
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks.verdict_bugs import planted
from benchmarks.verdict_models import NAMES, model_and_inputs
from benchmarks.verdict_rewrites import correct_rewrites
from fxlab.running import Inputs, run
from fxlab.tensors import tensors_by_path
from fxlab.validation.float64_run import run_in_float64

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "verdicts.jsonl"
PAGE = ROOT / "docs" / "verdicts.md"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
BUG_SHARE = 4
"""One in this many of the mistakes that could be planted is; all of them would be thousands."""
REACHED = 1e-12
"""How far apart, relative to the largest number, outputs in float64 are that a mistake has reached."""


def main() -> None:
    """Judge what has not been judged yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, and not to write the page; all by default")
    parser.add_argument("--quick", action="store_true", help="float32 alone")
    parser.add_argument("--shard", default="0/1", help="which part of the models, as 0/2 and 1/2")
    parser.add_argument("--keep", type=Path, default=KEPT, help="the file with what was judged")
    parser.add_argument("--write", type=Path, nargs="*", help="write the page from these files, and end")
    options = parser.parse_args()
    if options.write is not None:
        write(pd.DataFrame(row for path in options.write or [options.keep] for row in _rows(path)))
        return
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    part, parts = map(int, options.shard.split("/"))
    names = options.names or NAMES[part::parts]
    tasks = [(name, dtype) for dtype in list(DTYPES)[: 1 if options.quick else None] for name in names]
    done = {(row["model"], row["dtype"]) for row in _rows(options.keep)}
    options.keep.parent.mkdir(exist_ok=True)
    for name, dtype in tqdm([task for task in tasks if task not in done], unit="model"):
        rows = list(judged(name, dtype))
        with options.keep.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    rows = pd.DataFrame(_rows(options.keep))
    print("\n".join(report(rows)))
    if names == NAMES and not options.quick:
        write(rows)


def judged(name: str, dtype: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each rewrite and each mistake of a model."""
    about = {"model": name, "dtype": dtype}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, inputs = model_and_inputs(name, DTYPES[dtype])
            graph = fxlab.symbolic_trace(model, inputs, check=False)
    except Exception as error:  # a model may have no half precision on this machine
        yield about | {"kind": "not tried", "what": str(error)[:200]}
        return
    for what, changed in correct_rewrites(graph):
        yield about | {"kind": "rewrite", "what": what} | _judgements(graph, changed, inputs)
    seed = NAMES.index(name) * len(DTYPES) + list(DTYPES).index(dtype)
    for index, (what, wrong) in enumerate(planted(graph, seed)):
        if (index + seed) % BUG_SHARE == 0:
            yield about | {"kind": "bug", "what": what} | _judgements(graph, wrong, inputs)


def _judgements(graph: GraphModule, other: GraphModule, inputs: Inputs) -> dict[str, Any]:
    try:
        found = fxlab.verdict(graph, other, inputs)
    except Exception as error:  # to be seen in the table, not to end the run
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    ours, theirs = (tensors_by_path(run(module, inputs)) for module in (graph, other))
    row = {
        "status": str(found.status),
        "reason": found.reason[:300],
        "reached": _is_reached(graph, other, inputs),
    }
    for tolerance in TOLERANCES:
        row[f"{tolerance:g}"] = ours.keys() == theirs.keys() and all(
            ours[path].shape == theirs[path].shape
            and torch.allclose(
                ours[path].double(), theirs[path].double(), tolerance, tolerance, equal_nan=True
            )
            for path in ours
        )
    return row


def _is_reached(graph: GraphModule, other: GraphModule, inputs: Inputs) -> bool:
    """Tell whether two graphs differ in float64, or in what they draw."""
    try:
        ours, theirs = (tensors_by_path(run_in_float64(module, inputs).output) for module in (graph, other))
    except ValueError:
        return True
    return ours.keys() != theirs.keys() or any(
        ours[path].shape != theirs[path].shape or not _close(ours[path].double(), theirs[path].double())
        for path in ours
    )


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    both = a.isfinite() & b.isfinite()
    return not both.any() or bool((a - b)[both].abs().max() <= REACHED * a[both].abs().max())


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(rows: pd.DataFrame) -> list[str]:
    """Return the tables."""
    if "status" not in rows:
        return ["Nothing was judged."]
    tried = rows[rows["status"].notna()]
    right = tried[tried["kind"] == "rewrite"]
    # A lower precision is reached in the model's own dtype.
    bugs = tried[
        (tried["kind"] == "bug") & ((tried["reached"] == True) | tried["what"].str.contains("precision"))
    ]  # noqa: E712
    methods = ["verdict", *(f"{tolerance:g}" for tolerance in TOLERANCES)]
    heads = ["`verdict`", *(f"`allclose({tolerance:g})`" for tolerance in TOLERANCES)]
    accepts = {
        m: (lambda t: t["status"] != "different") if m == "verdict" else (lambda t, m=m: t[m] == True)
        for m in methods
    }  # noqa: E712
    lines = [
        "## False alarms",
        "",
        f"| Dtype | Rewrites | {' | '.join(heads)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for dtype, group in [*right.groupby("dtype", sort=False), ("all", right)]:
        alarms = [str(int((~accepts[m](group)).sum())) for m in methods]
        lines.append(f"| {dtype} | {len(group)} | {' | '.join(alarms)} |")
    lines += [
        "",
        "## Missed mistakes",
        "",
        f"| Mistake | Planted | {' | '.join(heads)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, group in [*bugs.groupby("what"), *bugs.groupby("dtype", sort=False), ("all", bugs)]:
        missed = [f"{100 * accepts[m](group).mean():.0f}%" for m in methods]
        lines.append(f"| {what} | {len(group)} | {' | '.join(missed)} |")
    lines += [
        "",
        "## Rewrites",
        "",
        f"| Rewrite | Tried | {' | '.join(heads)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, group in right.groupby("what"):
        alarms = [str(int((~accepts[m](group)).sum())) for m in methods]
        lines.append(f"| {what} | {len(group)} | {' | '.join(alarms)} |")
    return lines


def write(rows: pd.DataFrame) -> None:
    """Write the page of the docs."""
    head = [
        "# How often the verdict is wrong",
        "",
        "Made by `python -m benchmarks.verdicts` with torch "
        f"{torch.__version__.split('+')[0]} and transformers {transformers.__version__}: rewrites that are right, by "
        "fxlab's passes, by `torch.fx.experimental.optimization.fuse` and by hand, and mistakes of many classes, each "
        f"in one place, on {rows['model'].nunique()} tiny models. `allclose` has its tolerance as `atol` and `rtol`. "
        "A mistake that changes nothing in float64 on the inputs does not count.",
        "",
    ]
    PAGE.write_text("\n".join([*head, *report(rows)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
