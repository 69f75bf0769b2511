"""Measure coverage and write its tables: ``make coverage``, ``make coverage TASK=heads``, ...

A tiny model of each architecture is built, run, traced, and compared with eager bit for bit: on the inputs
it was traced on, and on others that it takes. Each runs in a process of its own, which is ended when it takes
too long. A run of all models that is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import os

from tqdm import tqdm

from benchmarks.coverage.processes import all_results
from benchmarks.coverage.progress import Progress
from benchmarks.coverage.results import Result
from benchmarks.coverage.tables import counts, write
from benchmarks.measured import versions

HEADS, LIBRARIES, WHOLE_MODELS = "heads", "libraries", "whole"


def main() -> None:
    """Try all models, or those that are named, and write the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to try, without writing tables; all by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--task",
        default="base",
        help=f"the head that transformers' models have, {HEADS}: each of them, {WHOLE_MODELS}: none, "
        f"but inputs of every kind, or {LIBRARIES}: models of other libraries",
    )
    options = parser.parse_args()
    if options.task == LIBRARIES:
        _libraries(options.names, options.workers)
    else:
        _architectures(options.names, options.task, options.workers)


def _architectures(names: list[str], task: str, workers: int) -> None:
    from benchmarks.coverage import architectures

    known = architectures.tasks()
    others = HEADS, WHOLE_MODELS, LIBRARIES
    if task not in (*known, *others):
        raise SystemExit(f"There is no task {task}. The tasks are: {', '.join((*known, *others))}.")
    chosen = [other for other in known if other != architectures.BASE] if task == HEADS else [task]
    by_task: dict[str, list[Result]] = {}
    for one in chosen:
        models = names or _models(one)
        tried = functools.partial(
            all_results, tried=functools.partial(architectures.tried, task=one), workers=workers
        )
        found = tried(models) if names else Progress(one).results(models, tried)
        results = list(tqdm(found, total=len(models), unit="model", desc=one))
        by_task[one] = sorted(results, key=lambda result: result.name)
    is_published = task in (architectures.BASE, HEADS, WHOLE_MODELS) and not names
    if not is_published:
        print(*(result for results in by_task.values() for result in results), sep="\n")
    else:
        command = "make coverage" if task == architectures.BASE else f"make coverage TASK={task}"
        write(command, task, by_task, versions("torch", "transformers"))
    if not names:
        for one in chosen:
            Progress(one).end()
    print(counts(task, by_task).to_string(index=False))


def _models(task: str) -> list[str]:
    from benchmarks.coverage import architectures
    from benchmarks.whole_models import whole_types

    if task == WHOLE_MODELS:
        return whole_types(architectures.model_types(architectures.BASE))
    return architectures.model_types(task)


def _libraries(names: list[str], workers: int) -> None:
    from benchmarks.coverage import libraries

    progress = None if names else Progress(LIBRARIES)
    by_library: dict[str, list[Result]] = {}
    for result in libraries.all_rows(names, workers, progress):
        by_library.setdefault(result.name.partition("/")[0], []).append(result)
    if progress is None:
        print(*(result for results in by_library.values() for result in results), sep="\n")
    else:
        made_with = f"{versions('torch')}, constraints-libraries.txt"
        write(f"make coverage TASK={LIBRARIES}", LIBRARIES, by_library, made_with)
        progress.end()
    print(counts(LIBRARIES, by_library).to_string(index=False))


if __name__ == "__main__":
    main()
