"""Which of transformers' architectures trace, at which sizes: ``make coverage`` writes ``docs/coverage.md``.

``make coverage TASK=heads`` does the same for models of every task, and writes ``docs/coverage_heads.md``.
``make coverage TASK=whole`` gives base models images, video and sound beside their text, tries more lengths,
and writes ``docs/coverage_whole.md``.

A tiny model of each is built from its configuration class, run, traced, and compared with eager bit for bit:
on the inputs it was traced on, at another batch size, and at another length (where it has one). Each runs in
a process of its own, which is ended when it takes too long.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from tqdm import tqdm

import fxlab
from benchmarks.whole_models import OTHER_SIZES, whole_input_names, whole_types
from fxlab.running import run
from fxlab.tensors import same_bits, tensors_by_path
from fxlab.tracing import example_inputs
from fxlab.tracing.report import BATCH, DATA, DYNAMIC, FIXED, REAL, REFUSAL, WHOLE
from fxlab.tracing.size_guards import THOUGH

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from zoo import SHRINKS, model_types, tasks, tiny_of_type  # noqa: E402 (of the tests, which are no package)

SECONDS = 180
RIGHT, REFUSED, WRONG = _HOW = "right", "refused", "wrong"
NOT_TRIED = ("not built", "no inputs", "not run")
BASE, HEADS, WHOLE_MODELS = "base", "heads", "whole"


@dataclass
class Result:
    """What came of one architecture."""

    model_type: str
    outcome: str = "not built"
    """What it was traced on, or ``not traced``; or why that was not tried."""
    reason: str = ""
    seconds: float = 0.0
    nodes: int = 0
    checks: dict[str, str] = field(default_factory=dict)
    """How the graph compares with eager on ``the inputs``, and at other sizes that the model takes."""

    @property
    def is_right(self) -> bool:
        return self.checks.get("the inputs") == RIGHT

    @property
    def is_right_at_other_sizes(self) -> bool:
        return set(self.checks.values()) == {RIGHT}


def tried(model_type: str, task: str = BASE) -> Result:
    """Build, run, trace and compare one architecture."""
    result = Result(model_type)
    model = None
    for shrink in SHRINKS:
        try:
            model = tiny_of_type(model_type, task=BASE if task == WHOLE_MODELS else task, shrink=shrink)
            result.outcome = "no inputs"
            names = whole_input_names(model) if task == WHOLE_MODELS else None
            inputs = example_inputs(model, input_names=names)
            result.outcome = "not run"
            with torch.no_grad():
                run(model, inputs)
        except ImportError as error:
            result.reason = _one_line(error)
            return result
        except Exception as error:  # a configuration may fail in any way
            result.reason = _one_line(error)
        else:
            break
    else:
        return result
    result.outcome, result.reason = "not traced", ""
    started = time.perf_counter()
    try:
        traced = fxlab.symbolic_trace(model, inputs)
    except Exception as error:  # so may a trace
        result.reason = _one_line(error)
        return result
    finally:
        result.seconds = time.perf_counter() - started
    report = traced.meta["trace"]
    result.outcome, result.nodes = report.rung, len(traced.graph.nodes)
    limits = [f"{f.what} {f.detail} {f.where}" for f in report.findings if THOUGH in f.detail]
    result.reason = _one_line(reasons[0]) if (reasons := [*report.steps_down, *limits]) else ""
    result.checks["the inputs"] = compared(model, traced, inputs) or WRONG
    for words, sizes in OTHER_SIZES.items():
        if task != WHOLE_MODELS and words not in ("another batch size", "another length"):
            continue
        found = compared(model, traced, example_inputs(model, input_names=names, **sizes))
        if found is not None:
            result.checks[words] = found
    return result


def compared(model: nn.Module, traced: nn.Module, inputs: dict[str, Any]) -> str | None:
    """Tell whether two modules give the same bits; nothing if the model does not take the inputs."""
    try:
        expected = tensors_by_path(run(model, inputs))
    except Exception:  # whatever the model raises for inputs that it does not take
        return None
    try:
        actual = tensors_by_path(run(traced, inputs))
    except AssertionError as error:
        return REFUSED if str(error).startswith(REFUSAL) else WRONG
    except Exception:  # as may what is recorded
        return WRONG
    if actual.keys() != expected.keys():
        return WRONG
    if all(same_bits(actual[path], expected[path]) for path in expected):
        return RIGHT
    again = tensors_by_path(run(model, inputs))  # no two runs of some models agree
    return WRONG if all(same_bits(again[path], expected[path]) for path in expected) else RIGHT


def all_results(names: list[str], workers: int, task: str = BASE) -> Iterator[Result]:
    """Try architectures, each in a process of its own; torch and transformers are imported before."""
    context = multiprocessing.get_context("fork")
    pending = list(reversed(names))
    running: dict[Connection, tuple[str, Any]] = {}
    while pending or running:
        while pending and len(running) < workers:
            name = pending.pop()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(name, task, sender))
            process.start()
            sender.close()
            running[receiver] = (name, process)
        for receiver in wait(list(running)):
            name, process = running.pop(receiver)
            try:
                result = receiver.recv()
            except EOFError:
                process.join()
                died = process.exitcode != -signal.SIGXCPU
                reason = "the process died" if died else f"not done after {SECONDS} seconds of a processor"
                result = Result(name, "not traced", reason)
            process.join()
            yield result


def _child(name: str, task: str, sender: Connection) -> None:
    # Not seconds of a clock, which would depend on what else the machine does.
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        sender.send(tried(name, task))


def summary(results: list[Result]) -> list[str]:
    """Return the counts, as lines of a table."""
    run_eagerly = [r for r in results if r.outcome not in NOT_TRIED]
    right = [r for r in run_eagerly if r.is_right]
    everywhere = [r for r in run_eagerly if r.is_right_at_other_sizes]
    counts = Counter(r.outcome for r in results)
    checks = [set(r.checks.values()) for r in run_eagerly]
    share = max(1, len(run_eagerly)) / 100
    return [
        "| | Architectures | |",
        "|---|---|---|",
        f"| that a tiny model runs eagerly of | {len(run_eagerly)} | of {len(results)} |",
        f"| a graph gives eager's own bits | {len(right)} | {len(right) / share:.1f}% |",
        f"| and at another batch size and length too | {len(everywhere)} | {len(everywhere) / share:.1f}% |",
        f"| a graph refuses another size, in words | {sum(REFUSED in found for found in checks)} | |",
        f"| a graph gives other numbers than eager | {sum(WRONG in found for found in checks)} | |",
        *(f"| traced on {rung} | {counts[rung]} | |" for rung in (DYNAMIC, DATA, WHOLE, BATCH, FIXED, REAL)),
    ]


def report(results: list[Result]) -> str:
    """Return ``docs/coverage.md``."""
    lines = [
        "# Which architectures trace",
        "",
        f"Made by `make coverage` with torch {torch.__version__.split('+')[0]} and transformers "
        f"{transformers.__version__}: a tiny, randomly initialised base model of each architecture that "
        "transformers knows, compared with eager bit for bit. [Models with heads](coverage_heads.md).",
        "",
        *summary(results),
        "",
        "## Where a graph holds for less than the model does",
        "",
        "| Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|",
        *(f"| {r.model_type} | {_limits(r)} |" for r in results if _is_limited(r)),
        "",
        "## Not tried",
        "",
        "No tiny model was made of these, or it does not run on inputs made from its configuration.",
        "",
        "| Architecture | | Why |",
        "|---|---|---|",
        *(f"| {r.model_type} | {r.outcome} | {_cell(r.reason)} |" for r in results if r.outcome in NOT_TRIED),
        "",
        "## Right at every size that was tried",
        "",
        ", ".join(r.model_type for r in results if r.is_right_at_other_sizes and r.outcome == DYNAMIC) + ".",
    ]
    return "\n".join(lines) + "\n"


def report_of_whole(results: list[Result]) -> str:
    """Return ``docs/coverage_whole.md``."""
    limited = [r for r in results if r.checks and not r.is_right_at_other_sizes]
    lines = [
        "# Whole models, with images and sound",
        "",
        f"Made by `make coverage TASK=whole` with torch {torch.__version__.split('+')[0]} and transformers "
        f"{transformers.__version__}: [base models](coverage.md) that are no parts of others, on as many "
        "kinds of input as each takes together, with every second row padded. They are compared at another "
        "number of images (one for each text of a batch) and at four other lengths.",
        "",
        *summary(results),
        "",
        "## Where a graph refuses a size that the model takes",
        "",
        "| Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|",
        *(f"| {r.model_type} | {_limits(r)} |" for r in limited),
    ]
    return "\n".join(lines) + "\n"


def report_of_heads(by_task: Mapping[str, list[Result]]) -> str:
    """Return ``docs/coverage_heads.md``."""
    lines = [
        "# Which models with heads trace",
        "",
        f"Made by `make coverage TASK=heads` with torch {torch.__version__.split('+')[0]} and transformers "
        f"{transformers.__version__}, as [that of the base models](coverage.md).",
        "",
        "| Task | Architectures | Run eagerly | Eager's own bits | At other sizes too |",
        "|---|---|---|---|---|",
        *(f"| {task} | {len(results)} | {_shares(results)} |" for task, results in by_task.items()),
        "",
        "## Where a graph holds for less than the model does",
        "",
        "| Task | Architecture | Traced on | Checked | Why |",
        "|---|---|---|---|---|",
        *(
            f"| {task} | {r.model_type} | {_limits(r)} |"
            for task, results in by_task.items()
            for r in results
            if _is_limited(r) and not r.is_right_at_other_sizes
        ),
    ]
    return "\n".join(lines) + "\n"


def _shares(results: list[Result]) -> str:
    run_eagerly = [r for r in results if r.outcome not in NOT_TRIED]
    right = sum(r.is_right for r in run_eagerly)
    return f"{len(run_eagerly)} | {right} | {sum(r.is_right_at_other_sizes for r in run_eagerly)}"


def _is_limited(result: Result) -> bool:
    is_partial = bool(result.checks) and not result.is_right_at_other_sizes
    return is_partial or result.outcome not in (*NOT_TRIED, DYNAMIC)


def _limits(result: Result) -> str:
    return f"{result.outcome} | {_checked(result)} | {_cell(result.reason)}"


def _checked(result: Result) -> str:
    places = {how: [at for at, found in result.checks.items() if found == how] for how in _HOW}
    return "; ".join(f"{how}: {', '.join(at)}" for how, at in places.items() if at) or "nowhere"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:240]


def _one_line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    site = str(Path(transformers.__file__).parents[1])
    return text.replace(f"{site}/", "")[:400]


def main() -> None:
    """Try all architectures, or those that are named, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", help="architectures to try; all if none is named, with a report for base models"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--task",
        choices=[*tasks(), HEADS, WHOLE_MODELS],
        default=BASE,
        help="which head the models have; heads: each of them; whole: none, but inputs of every kind",
    )
    options = parser.parse_args()
    chosen = [task for task in tasks() if task != BASE] if options.task == HEADS else [options.task]
    by_task: dict[str, list[Result]] = {}
    try:
        for task in chosen:
            every_type = model_types(BASE if task == WHOLE_MODELS else task)
            names = options.names or (whole_types(every_type) if task == WHOLE_MODELS else every_type)
            found = all_results(names, options.workers, task)
            results = by_task[task] = []
            results.extend(tqdm(found, total=len(names), unit="model", desc=task))
    except KeyboardInterrupt:
        print("Interrupted: what follows is about the architectures that were tried.")
    for results in by_task.values():
        results.sort(key=lambda result: result.model_type)
    every = [result for results in by_task.values() for result in results]
    if not options.names and options.task == BASE:
        (ROOT / "docs" / "coverage.md").write_text(report(every), encoding="utf-8")
    elif not options.names and options.task == HEADS:
        (ROOT / "docs" / "coverage_heads.md").write_text(report_of_heads(by_task), encoding="utf-8")
    elif not options.names and options.task == WHOLE_MODELS:
        (ROOT / "docs" / "coverage_whole.md").write_text(report_of_whole(every), encoding="utf-8")
    else:
        print(*every, sep="\n")
    print("\n".join(summary(every)))


if __name__ == "__main__":
    main()
