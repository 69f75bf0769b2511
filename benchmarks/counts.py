"""Work that fixed tasks take, in counts that are the same on every machine: a guard against slow losses.

``python -m benchmarks.counts`` counts the calls of Python, operators on fake tensors, questions about
symbolic sizes and bytes of a report, and prints them; with ``write`` it keeps them in ``counts.csv`` beside
this file, with which ``tests/test_counts.py`` compares. They depend on the versions of Python, torch and
transformers, so each row says with which it was counted.
"""

from __future__ import annotations

import cProfile
import platform
import pstats
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
import transformers
from transformers import LlamaConfig, LlamaModel

import fxlab
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.fake_mode import FakeMode

FILE = Path(__file__).with_name("counts.csv")
TOLERANCE = 0.1
"""The share by which a count may grow before somebody has to look at it."""


def environment() -> str:
    """Return the versions that counts depend on."""
    python, packages = platform.python_version(), (torch.__version__, transformers.__version__)
    return f"Python {python}, torch {packages[0].partition('+')[0]}, transformers {packages[1]}"


def kept() -> dict[tuple[str, str], int]:
    """Return the counts that were kept with these versions: task and what is counted -> how many."""
    table = pd.read_csv(FILE)
    return _numbers(table[table["environment"] == environment()])


def counted_elsewhere() -> dict[tuple[str, str], int]:
    """Return the counts that were kept with any versions."""
    return _numbers(pd.read_csv(FILE))


def _numbers(table: pd.DataFrame) -> dict[tuple[str, str], int]:
    return {(str(row.task), str(row.counted)): int(row.number) for row in table.itertuples()}  # type: ignore[arg-type]


def counts() -> dict[tuple[str, str], int]:
    """Do the tasks, each of which has been done once before, and count."""
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 50}
    model = LlamaModel(LlamaConfig(num_hidden_layers=8, use_cache=False, **small)).eval()
    inputs = fxlab.example_inputs(model)
    traced = fxlab.symbolic_trace(model, inputs, check=False)
    session = fxlab.Session(traced, inputs)
    session.apply("merge-linears")
    # Whether merged products keep their bits depends on the processor, and ends a verdict early.
    wrong = fxlab.DeepCopy()(session.graph_module)
    with torch.no_grad():
        wrong.get_parameter("embed_tokens.weight").mul_(1.01)

    def toggle() -> None:
        session.revert("merge-linears")
        session.apply("merge-linears")

    def explain() -> None:
        new = fxlab.Session(traced, inputs)
        for pass_ in new.passes:
            new.explain(pass_)

    def verdict() -> None:
        fxlab.verdict(traced, wrong, inputs)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        tasks: dict[str, Callable[[], Any]] = {
            "trace a Llama of 8 layers": lambda: fxlab.symbolic_trace(model, inputs, check=False),
            "switch a pass off and on": toggle,
            "judge it": verdict,
            "explain all passes": explain,
            "write a report": lambda: fxlab.report(session, path=path, measure=False),
        }
        found = {
            (task, counted): number for task, do in tasks.items() for counted, number in _counted(do).items()
        }
        found["write a report", "bytes"] = path.stat().st_size
    return found


def _counted(task: Callable[[], Any]) -> dict[str, int]:
    task()
    numbers = {"fake operators": 0, "questions about sizes": 0}

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            numbers[name] += 1
            return method(*args, **kwargs)

        return count

    with (
        patch.object(FakeMode, "dispatch", counting("fake operators", FakeMode.dispatch)),
        patch.object(
            ModelSizes, "_evaluate_expr", counting("questions about sizes", ModelSizes._evaluate_expr)
        ),
    ):
        profile = cProfile.Profile()
        profile.runcall(task)
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return {"calls of Python": calls} | {name: number for name, number in numbers.items() if number}


def main() -> None:
    """Count, print and keep."""
    found = counts()
    rows = [
        {"task": task, "counted": counted, "number": number, "environment": environment()}
        for (task, counted), number in found.items()
    ]
    table = pd.DataFrame(rows)
    table["kept"] = [kept().get(key) for key in found]
    print(table.drop(columns="environment").to_string(index=False))
    if "write" in sys.argv[1:]:
        others = pd.read_csv(FILE)
        others = others[others["environment"] != environment()]
        pd.concat([others, table.drop(columns="kept")]).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
