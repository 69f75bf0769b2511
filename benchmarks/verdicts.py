"""False alarms and missed mistakes of ``fxlab.verdict``: ``python -m benchmarks.verdicts``.

Some thousand rewrites that are right and five hundred planted mistakes, on forty models in three dtypes, are
judged by the verdict and by ``torch.allclose`` with four tolerances. A mistake that changes nothing in
float64 is not reached by the inputs and does not count. What was judged is kept in
``build/verdicts.jsonl``, so a run can be interrupted and goes on where it was; a run of all writes
``docs/measured/verdicts.csv`` and its row of ``docs/measured.md``.
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
from torch.fx import GraphModule
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from benchmarks import measured
from benchmarks.verdict_bugs import planted
from benchmarks.verdict_models import NAMES, model_and_inputs
from benchmarks.verdict_rewrites import correct_rewrites
from fxlab.models.running.arguments import Inputs
from fxlab.models.running.running import run
from fxlab.validation.verdicts.float64_run import run_in_float64
from fxlab.values.tensors import tensors_by_path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "verdicts.jsonl"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
BUG_SHARE = 0.3
"""The share of classes of mistakes that is tried on each model."""
KEYS = ["kind", "what", "dtype"]
REACHED = 1e-12
"""How far apart, relative to the largest number, outputs in float64 are that a mistake has reached."""


def main() -> None:
    """Judge what has not been judged yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing the table; all by default")
    parser.add_argument("--quick", action="store_true", help="float32 alone")
    parser.add_argument("--shard", default="0/1", help="which part of the models, as 0/2 and 1/2")
    parser.add_argument("--keep", type=Path, default=KEPT, help="the file with what was judged")
    parser.add_argument("--write", type=Path, nargs="*", help="write the table from these files, and end")
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
    table = pd.DataFrame(_rows(options.keep))
    print(report(table).to_string(index=False))
    if names == NAMES and not options.quick:
        write(table)


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


def report(rows: pd.DataFrame) -> pd.DataFrame:
    """Return in which share (in percent) the verdict and each tolerance are wrong, by rewrite and mistake.

    A right rewrite that is called different is a false alarm; a mistake that is called the same is missed.
    """
    judged_rows = rows[rows["status"].notna()] if "status" in rows else rows.iloc[:0]
    if judged_rows.empty:
        return pd.DataFrame(columns=["kind", "what", "dtype", "tried", "verdict"])
    agrees = judged_rows[[f"{tolerance:g}" for tolerance in TOLERANCES]].astype(bool)
    agrees = agrees.rename(columns="allclose({})".format)
    agrees.insert(0, "verdict", judged_rows["status"] != "different")
    is_right = judged_rows["kind"] == "rewrite"
    # A lower precision is reached in the model's own dtype alone.
    reached = judged_rows["reached"].astype(bool) | judged_rows["what"].str.contains("precision")
    wrong = agrees.mask(is_right, ~agrees)[is_right | reached]
    rows = pd.concat([judged_rows.loc[wrong.index, KEYS], wrong.astype(int)], axis=1)
    views = [rows.assign(dtype="all"), rows.assign(what="all"), rows.assign(what="all", dtype="all")]
    groups = [group for view in views for group in view.groupby(KEYS, sort=False)]
    table = pd.DataFrame(
        dict(zip(KEYS, key, strict=True))
        | {"tried": len(group)}
        | (100 * group[agrees.columns].mean()).round(1).to_dict()
        for key, group in groups
    )
    return table.sort_values("kind", kind="stable")


def write(rows: pd.DataFrame) -> None:
    """Write the table, and the row of the page."""
    table = report(rows)
    in_all = table[(table["what"] == "all") & (table["dtype"] == "all")].set_index("kind")
    alarms, missed = in_all.loc["rewrite"], in_all.loc["bug"]
    figure = (
        f"false alarms on {alarms['verdict']:.0f}% of {alarms['tried']:,} right rewrites, "
        f"{missed['verdict']:.0f}% of {missed['tried']} planted mistakes missed; `allclose` with 0.001: "
        f"{alarms['allclose(0.001)']:.0f}% and {missed['allclose(0.001)']:.0f}%"
    )
    measured.write("python -m benchmarks.verdicts", figure, {"verdicts": table})


if __name__ == "__main__":
    main()
