"""False alarms and missed mistakes of ``fxlab.verdict``: ``python -m benchmarks.verdicts``.

Some thousand rewrites that are right and five hundred planted mistakes, on forty models in three dtypes, are
judged by the verdict and by ``torch.allclose`` with four tolerances. A mistake that changes nothing in
float64 is not reached by the inputs and does not count. What was judged is kept in
``build/verdicts.jsonl``, so a run can be interrupted and goes on where it was; a run of all writes
``docs/verdicts.md``.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
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
from fxlab.models.running import Inputs, run
from fxlab.validation.verdicts.float64_run import run_in_float64
from fxlab.values.tensors import tensors_by_path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "verdicts.jsonl"
PAGE = ROOT / "docs" / "verdicts.md"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
BUG_SHARE = 0.3
"""The share of classes of mistakes that is tried on each model."""
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
    for what, wrong in planted(graph, seed, BUG_SHARE):
        yield about | {"kind": "bug", "what": what} | _judgements(graph, wrong, inputs)


def _judgements(graph: GraphModule, other: GraphModule, inputs: Inputs) -> dict[str, Any]:
    try:
        found = fxlab.verdict(graph, other, inputs)
    except Exception as error:  # to be seen in the table, not to end the run
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    ours, theirs = (tensors_by_path(run(module, inputs)) for module in (graph, other))
    return {
        "status": str(found.status),
        "reason": found.reason[:300],
        "reached": _is_reached(graph, other, inputs),
        **{f"{tolerance:g}": _all_close(ours, theirs, tolerance) for tolerance in TOLERANCES},
    }


def _all_close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> bool:
    return ours.keys() == theirs.keys() and all(
        tensor.shape == theirs[path].shape
        and torch.allclose(tensor.double(), theirs[path].double(), tolerance, tolerance, equal_nan=True)
        for path, tensor in ours.items()
    )


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
    judged_rows = rows[rows["status"].notna()]
    agrees = judged_rows[[f"{tolerance:g}" for tolerance in TOLERANCES]].astype(bool)
    agrees.insert(0, "verdict", judged_rows["status"] != "different")
    is_right = judged_rows["kind"] == "rewrite"
    # A lower precision is reached in the model's own dtype alone.
    reached = judged_rows["reached"].astype(bool) | judged_rows["what"].str.contains("precision")
    right, wrong = judged_rows[is_right], judged_rows[~is_right & reached]
    alarms, missed = ~agrees.loc[right.index], agrees.loc[wrong.index]
    by_dtype = [(d, group.index) for d, group in right.groupby("dtype", sort=False)]
    by_rewrite = [(w, group.index) for w, group in right.groupby("what")]
    by_bug = [(w, group.index) for w, group in wrong.groupby("what")]
    unseen = int((wrong["status"] == "same bits").sum())
    by_bug += [(f"all in {d}", group.index) for d, group in wrong.groupby("dtype", sort=False)]
    return [
        *("## False alarms", ""),
        *_table("Dtype", "Rewrites", [*by_dtype, ("all", right.index)], lambda i: alarms.loc[i].sum()),
        *("", "By rewrite:", ""),
        *_table("Rewrite", "Tried", by_rewrite, lambda i: alarms.loc[i].sum()),
        *("", "## Missed mistakes", ""),
        f"{unseen} of the mistakes that the verdict misses leave every bit of all outputs as it is.",
        "",
        *_table("Mistake", "Planted", [*by_bug, ("all", wrong.index)], lambda i: _percent(missed.loc[i])),
    ]


def _table(
    head: str, count: str, groups: list[tuple[str, pd.Index]], numbers: Callable[[pd.Index], pd.Series]
) -> list[str]:
    heads = ["`verdict`", *(f"`allclose({tolerance:g})`" for tolerance in TOLERANCES)]
    rows = [[name, str(len(index)), *map(str, numbers(index))] for name, index in groups]
    rule = ["---"] * (len(heads) + 2)
    return [f"| {' | '.join(cells)} |" for cells in ([head, count, *heads], rule, *rows)]


def _percent(missed: pd.DataFrame) -> pd.Series:
    return missed.mean().map(lambda share: f"{100 * share:.0f}%")


def write(rows: pd.DataFrame) -> None:
    """Write the page of the docs."""
    tried, version = rows["model"].nunique(), torch.__version__.split("+")[0]
    head = [
        "# How often the verdict is wrong",
        "",
        f"Made by `python -m benchmarks.verdicts` with torch {version} and transformers "
        f"{transformers.__version__}: rewrites that are right (fxlab's passes, "
        "`torch.fx.experimental.optimization.fuse`, and others written by hand) and mistakes of many "
        f"classes, each in one place, on {tried} tiny models. `allclose` has its tolerance as both `atol` "
        "and `rtol`. A mistake that changes nothing in float64 on these inputs does not count.",
        "",
    ]
    PAGE.write_text("\n".join([*head, *report(rows)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
